"""Unicode in one form, without what nobody sees."""

from __future__ import annotations

import re
import unicodedata

from schemas.documents import Block

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_NOT_ASCII = re.compile(r"[^\x09\x0a\x20-\x7e]")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x85\u2028\u2029]")
_TERMINAL = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[()][0-9A-Za-z]|[=>78]|\\][^\x07\x1b]{0,500}(?:\x07|\x1b\\\\))")
_CONTROLS = re.compile("[\x00-\x08\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\uffa0\ufffc]")
# Soft hyphen, zero width space and word joiner, byte order mark, direction marks and embeddings, invisible operators,
# deprecated format characters, interlinear notes, tags (text that only machines see), Hangul and Mongolian fillers.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# Joiners mean something between letters of Arabic, Syriac, Indic and other scripts, and in sequences of emoji.
_JOINED = (
    "\u0600-\u08ff\u0900-\u109f\u1780-\u18af\u1a20-\u1aad\ua840-\ua877\ufb50-\ufdff\ufe70-\ufefc"
    "\u203c-\u3299\ufe0f\U0001f000-\U0001faff\U00010a00-\U00011fff"
)
_JOINABLE = re.compile(f"[{_JOINED}]")
_SELECTOR = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_LEANING = re.compile("[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """A decoded source before it is read; its length and offsets are those that anchors refer to.

    NULs become blanks and lone surrogates U+FFFD; nothing is added or taken away, so an offset counts the code points
    of the source after decoding, with line ends as LF. Everything else is left to ``normalised``, as it may be code.
    """
    return _NO_TEXT.sub(lambda match: " " if match.group() == "\x00" else "\ufffd", text)


def normalised(blocks: list[Block]) -> list[Block]:
    """The blocks of a reader, each text in the stored form; blocks that nothing is left of are dropped.

    Code keeps its bytes, NULs, lone surrogates and line ends aside. See ``prose`` for all else.
    """
    found: list[Block] = []
    for block in blocks:
        shape = code if block.type == "code" else prose
        text = shape(block.text)
        if not text.strip():
            continue
        header = shape(block.header) if block.header is not None else None
        same = text == block.text and header == block.header
        found.append(block if same else block.model_copy(update={"text": text, "header": header}))
    return found


def prose(text: str) -> str:
    """A text in the form that is hashed, embedded and searched.

    NFC; line ends as LF; every kind of blank as a blank; without control characters, terminal sequences and characters
    that nobody sees. Joiners stay where scripts and emoji need them, of several variation selectors the first.
    """
    if _NOT_ASCII.search(text) is None:
        return text
    if "\x1b" in text:
        text = _TERMINAL.sub("", text)
    text = _CONTROLS.sub(" ", _LINE_ENDS.sub("\n", clean(text)))
    if text.isascii():
        return text
    text = _UNSEEN.sub("", _BLANKS.sub(" ", text))
    return unicodedata.normalize("NFC", _leaning(text))


def _leaning(text: str) -> str:
    """Without joiners after what nothing joins, and without more than one variation selector in a row.

    What decides is the character before that stays, so going over the result again changes nothing.
    """
    kept: list[str] = []
    at, before = 0, ""
    for match in _LEANING.finditer(text):
        if match.start() > at:
            kept.append(text[at : match.start()])
            before = text[match.start() - 1]
        at, mark = match.end(), match.group()
        if _SELECTOR.match(mark) is not None:
            stays = _SELECTOR.match(before) is None
        else:
            stays = _JOINABLE.match(before) is not None
        if stays:
            kept.append(mark)
            before = mark
    return text if not kept and not at else "".join([*kept, text[at:]])


def code(text: str) -> str:
    """A code block's text: as it is, without a byte order mark before it, NULs, lone surrogates and CRs."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return clean(text.removeprefix("\ufeff"))


def doubts(blocks: list[Block]) -> tuple[str, ...]:
    """Warnings about what normalised blocks still hold: code that is not shown in the order in which it runs."""
    if any(block.type == "code" and not block.text.isascii() and _DIRECTION.search(block.text) for block in blocks):
        return (
            "code: a code block holds marks of text direction, so what is shown may differ from what runs; kept as it "
            "is",
        )
    return ()
