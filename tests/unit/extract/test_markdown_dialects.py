"""What Markdown dialects add: formulas, footnotes, admonitions, definition lists, wiki links, HTML inside."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract.markdown import read_markdown


def shape(text: str) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in read_markdown(text)]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$$\na_1 + b_2\\\\\n*c*\n$$", [("math", "a_1 + b_2\\\\\n*c*")]),
        ("$$ x^2 $$\nafter", [("math", "x^2"), ("paragraph", "after")]),
        ("\\[\n\\frac{1}{2}\n\\]", [("math", "\\frac{1}{2}")]),
        ("```math\n\\sum_i\n```", [("math", "\\sum_i")]),
        ("text $a_1 * b_1 * c$ and \\(d_2\\), $`e`$.", [("paragraph", "text $a_1 * b_1 * c$ and $d_2$, $e$.")]),
        ("It costs $5 and *then* $6, or US$7.", [("paragraph", "It costs $5 and then $6, or US$7.")]),
        ("$20,000 *net* for $30,000", [("paragraph", "$20,000 net for $30,000")]),
        ("Set $HOME *or* $PATH", [("paragraph", "Set $HOME or $PATH")]),
        ("echo \\$HOME $PATH", [("paragraph", "echo $HOME $PATH")]),
        ("$$ never closed\n\n# Next", [("paragraph", "$$ never closed"), ("heading", "Next")]),
        ("- item\n\n  $$\n  x\n  $$\n- next", [("list", "- item"), ("math", "x"), ("list", "- next")]),
        ("code `$x_1$` stays", [("paragraph", "code $x_1$ stays")]),
    ],
)
def test_formulas_keep_their_source_and_money_is_none(text: str, expected: list[tuple[str, str]]) -> None:
    assert shape(text) == expected


@pytest.mark.requirement("A2")
def test_footnotes_are_collected_with_their_marks() -> None:
    text = (
        "One[^1] and[^note].\n\n[^1]: First *note*\n    goes on.\n[^note]: Second\n\n"
        "    ```sh\n    make  x\n    ```\n\nAfter. [^9]\n\n- item[^1]\n\n[^9]: [^1]: odd"
    )
    assert shape(text) == [
        ("paragraph", "One[^1] and[^note]."),
        ("paragraph", "After. [^9]"),
        ("list", "- item[^1]"),
        ("footnote", "[^1] First note goes on."),
        ("footnote", "[^note] Second\nmake x"),
        ("footnote", "[^9] [^1]: odd"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "text",
    [
        "> [!WARNING]\n> Very *hot*\n>\n> ```sh\n> a\n> ```",
        ":::warning\nVery *hot*\n\n```sh\na\n```\n:::",
        "::: warning\n\nVery *hot*\n\n```sh\na\n```\n\n:::",
        "!!! warning\n    Very *hot*\n\n    ```sh\n    a\n    ```\n",
        "??? warning\n    Very *hot*\n\n    ```sh\n    a\n    ```\n",
        "````{warning}\nVery *hot*\n\n```sh\na\n```\n````",
    ],
)
def test_admonitions_of_every_dialect(text: str) -> None:
    assert shape(f"Before\n\n{text}\n\nafter") == [
        ("paragraph", "Before"),
        ("paragraph", "Warning: Very hot"),
        ("code", "a"),
        ("paragraph", "after"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "text",
    [
        "> [!tip]- Use gloves\n> Always",
        ":::tip[Use gloves]\nAlways\n:::",
        ":::tip Use gloves\nAlways\n:::",
        '!!! tip "Use gloves"\n    Always',
    ],
)
def test_admonitions_with_titles(text: str) -> None:
    assert shape(text) == [("paragraph", "Tip: Use gloves: Always")]


@pytest.mark.requirement("A2", "F11", "F12")
def test_boxes_nest_and_colons_in_code_close_nothing() -> None:
    text = "::::note\nouter\n:::tip\ninner\n```\n:::\n# no heading\n```\n:::\nouter again\n::::\nafter"
    assert shape(text) == [
        ("paragraph", "Note: outer"),
        ("paragraph", "Tip: inner"),
        ("code", ":::\n# no heading"),
        ("paragraph", "outer again"),
        ("paragraph", "after"),
    ]
    assert shape(":::note\nnever closed\n\n# Heading") == [
        ("paragraph", "Note: never closed"),
        ("heading", "Heading"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Term\n: one *way*\n: another\nNext\n: third", [("list", "- Term\n  one way\n  another\n- Next\n  third")]),
        ("See [[Home Page]] and [[install-guide|Install guide]], [[Api|the API]]; ![[map.png]]",
         [("paragraph", "See Home Page and Install guide, the API (Api); map.png")]),
        ("- [x] done\n- [ ] open", [("list", "- [x] done\n- [ ] open")]),
        ("# Title {#anchor}\n## C {1}", [("heading", "Title"), ("heading", "C {1}")]),
        ("old ~~price~~ new", [("paragraph", "old ~~price~~ new")]),
        ("H<sub>2</sub>O x<sup>2</sup> <a href='https://example.org/x'>y</a>",
         [("paragraph", "H2O x^2 y (https://example.org/x)")]),
        (":smile: {% include note.html %} {{ site.title }}",
         [("paragraph", ":smile: {% include note.html %} {{ site.title }}")]),
        ("[a][r] [r]\n\n[r]: https://example.org/r", [("paragraph", "a (https://example.org/r) r (https://example.org/r)")]),
        ("<!-- gone\n\n# no heading\n\n-->\n\nkept <!-- gone --> too", [("paragraph", "kept  too".replace("  ", " "))]),
        ("<details>\n<summary>More</summary>\n\n- one\n  - two\n\n</details>",
         [("paragraph", "More"), ("list", "- one\n  - two")]),
        ("<table>\n<tr><th>a</th><th>b</th></tr>\n\n<tr><td>1</td><td>2</td></tr>\n\n</table>",
         [("table", "| a | b |\n| --- | --- |\n| 1 | 2 |")]),
        ("| a | b |\n|---|---|\n| `x \\| y` | [[p\\|q]] |",
         [("table", "| a | b |\n| --- | --- |\n| x \\| y | q (p) |")]),
        ("1. a\n   1. b\n      - c", [("list", "1. a\n  1. b\n    - c")]),
        ("    indented\n      code\n\n    more", [("code", "indented\n  code\n\nmore")]),
        ("Setext\n===\ntext", [("heading", "Setext"), ("paragraph", "text")]),
    ],
)  # fmt: skip
def test_what_dialects_write(text: str, expected: list[tuple[str, str]]) -> None:
    assert shape(text) == expected


@pytest.mark.requirement("A2", "F11")
@pytest.mark.parametrize(
    ("info", "language", "title"),
    [
        ("js", "js", None),
        ("{.python .numberLines}", "python", None),
        ('tsx title="src/App.tsx" {1,3}', "tsx", "src/App.tsx"),
        ("js{1,3}", "js", None),
        ("c++", "c++", None),
        ("", None, None),
    ],
)
def test_info_strings(info: str, language: str | None, title: str | None) -> None:
    blocks = read_markdown(f"~~~ {info}\n\ta\n~~~")
    assert (blocks[-1].text, blocks[-1].language) == ("\ta", language)
    assert [block.text for block in blocks[:-1]] == ([title] if title else [])


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize(
    "unit",
    ["$$ a\n", "$a ", "\\(", "[^1]: x\n", "[^1]: x\n\n", ":::note\n", "!!! note\n", "> [!NOTE]\n", "[[", "$$",
     "a\n: b\n", "::: a\n:::\n", "~~~{note}\n", "<sup>", "<td>\n\n", "\\[\n"],
)  # fmt: skip
def test_time_grows_with_length_alone(unit: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        read_markdown(unit * (length // len(unit)))
        return time.process_time() - started

    seconds(1_000)
    small, large = seconds(4_000), seconds(32_000)
    assert large < 24 * small + 2, f"{small:.3f} s for 4 kB, {large:.3f} s for 32 kB"


@pytest.mark.requirement("A2")
def test_boxes_and_directives_do_not_recurse_with_depth() -> None:
    inside = "".join("    " * depth + "!!! note\n" for depth in range(300)) + "    " * 300 + "kept"
    fences = "".join("`" * (200 - n) + "{note}\n" for n in range(190)) + "kept"
    for text in (inside, ":::note\n" * 3000 + "kept", fences, "> [!NOTE]\n" + ">" * 3000 + " kept"):
        assert "kept" in "\n".join(block.text for block in read_markdown(text))


WORDS = st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), min_size=1, max_size=4).map(" ".join)
PIECE = st.one_of(
    st.builds("{0} ".format, WORDS),
    st.builds("{0}\n".format, WORDS),
    st.builds("# {}\n".format, WORDS),
    st.builds("- {}\n".format, WORDS),
    st.builds("> {}\n".format, WORDS),
    st.builds("\n:::note {}\n".format, WORDS),
    st.builds("\n!!! note\n    {}\n".format, WORDS),
    st.builds("\n$$\n{}\n$$\n".format, WORDS),
    st.builds("\n[^a]: {}\n".format, WORDS),
    st.builds("> [!TIP] {}\n".format, WORDS),
    st.builds("[[{}]] ".format, WORDS),
    st.builds("*{}* ".format, WORDS),
    st.builds("<b>{}</b> ".format, WORDS),
    st.builds("```\n{}\n```\n".format, WORDS),
    st.builds("{}\n: x\n".format, WORDS),
)


@pytest.mark.requirement("A2")
@settings(max_examples=80, deadline=None)
@given(st.lists(PIECE, min_size=1, max_size=12).map("".join))
def test_no_word_of_any_dialect_is_lost(text: str) -> None:
    found = " ".join(block.text for block in read_markdown(text))

    def words(of: str) -> list[str]:
        return sorted("".join(c if c.isalpha() else " " for c in of.lower()).split())

    missing = set(words(text)) - set(words(found)) - {"b", "note", "tip", "x", "a"}
    if "```" not in text:  # words behind a fence name the code's language
        assert not missing
