"""Front matter of Markdown bodies."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipeline.extract import BlockExtractor, front_matter
from pipeline.extract.front_matter import split


def micros(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc,arg-type]


@pytest.mark.requirement("A2", "A3")
def test_known_keys_are_normalised() -> None:
    text = (
        "---\ntitle: Travel policy\nlang: en-GB\nproduct: Kestrel\neffective_from: 2025-01-01\n"
        "effective_until: 2025-12-31\nowner: ann\n---\n# Body\n"
    )
    assert front_matter(text) == {
        "title": "Travel policy",
        "language": "en-GB",
        "product": "Kestrel",
        "effective_from": micros(2025, 1, 1),
        "effective_until": micros(2026, 1, 1),  # the last day is part of it
        "owner": "ann",
    }
    document = BlockExtractor().extract(text.encode(), "text/markdown")
    assert (document.title, document.language, document.warnings) == ("Travel policy", "en-GB", ())
    assert [block.text for block in document.blocks] == ["Body"]


@pytest.mark.requirement("A3")
def test_instants_and_zones() -> None:
    values = front_matter(
        "---\neffective_from: 2025-03-01T10:00:00+02:00\neffective_until: '2025-03-02T00:00:00Z'\n---\n"
    )
    assert values == {"effective_from": micros(2025, 3, 1, 8), "effective_until": micros(2025, 3, 2)}


@pytest.mark.requirement("A2", "A3")
def test_toml_between_plus_signs() -> None:
    text = (
        '+++\ntitle = "Travel policy"\nlang = "en"\neffective_from = 2025-01-01\ntags = ["a"]\n[extra]\nx = 1\n+++\n'
        "# Body\n"
    )
    assert front_matter(text) == {
        "title": "Travel policy",
        "language": "en",
        "effective_from": micros(2025, 1, 1),
        "tags": ["a"],
        "extra": {"x": 1},
    }
    assert split(text).body == "# Body\n"
    broken = split("+++\ntitle = Travel\n+++\nText")
    assert (broken.string("title"), broken.body) == ("Travel", "Text")
    assert "not valid TOML" in broken.warnings[0]
    assert split("+++\nno pairs\n+++\nText").body == "+++\nno pairs\n+++\nText"


@pytest.mark.requirement("A2")
def test_invalid_yaml_is_read_line_by_line_and_warned_about() -> None:
    document = BlockExtractor().extract(b"---\ntitle: Leave: a guide\nlang: en\n---\nText", "text/markdown")
    assert document.title == "Leave: a guide"
    assert document.language == "en"
    assert any("not valid YAML" in warning for warning in document.warnings)
    assert [block.text for block in document.blocks] == ["Text"]


@pytest.mark.requirement("A2")
def test_a_bad_date_is_left_out_with_a_warning() -> None:
    front = split("---\neffective_from: soon\neffective_until: [1]\ntitle: {a: b}\n---\nx")
    assert dict(front.values) == {}
    assert len(front.warnings) == 3


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "text",
    [
        "no front matter",
        "---\n\nA rule, then prose.\n\n---\nmore",
        "---\ntitle: never closed\n",
        "\n---\ntitle: late\n---\n",
    ],
)
def test_what_is_not_front_matter_stays_body(text: str) -> None:
    assert front_matter(text) == {}
    assert split(text).body == text


@pytest.mark.requirement("A2")
def test_hostile_front_matter_is_bounded() -> None:
    deep = "---\na: " + "[" * 20_000 + "\n---\nbody"
    assert split(deep).body.endswith("body")
    bomb = "---\na: &a [x,x]\n" + "".join(
        f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert BlockExtractor().extract((bomb + "---\nbody").encode(), "text/markdown").blocks[0].text == "body"


@pytest.mark.requirement("A2")
def test_without_front_matter_the_first_heading_is_the_title() -> None:
    extract = BlockExtractor().extract
    assert extract(b"intro\n\n# Real title\n\n# Other", "text/markdown").title == "Real title"
    assert extract(b"## only a part", "text/markdown").title is None
