"""Sentences as what they claim: words with clauses and polarity, numbers, names; and the windows of a source.

A *window* is what a sentence is held against: one sentence of a passage (list items and table rows are sentences of
their own), alone or with the one before it. Title, headings, a table's header and a list's opening line are context.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from pipeline import analysis
from pipeline.chunk.sentences import is_limiting, iter_sentences
from query_service.answer.interface import Source
from query_service.text import claims as w
from query_service.text.numbers import ARTICLES, Quantity, quantities, unit, value

Kind = Literal["content", "light", "stop", "number", "name"]
MOST_SENTENCES = 400  # of one source that are looked at
MOST_WORDS = 120  # of one sentence that are looked at; what is longer is supported only word for word

_TOKEN = re.compile(r"\d+(?:[.,:]\d+)+(?![\w-])|[^\W_]\w*(?:[-./:\\#+@*'’_]+\w+)*[+#]?|[%‰€$£°]|[;:,.()!?–—|]|->|→")
_CLAUSE = frozenset(",;:()–—|.!?")
_STRONG = frozenset(";.!?|–—")
_SUBORDINATE = frozenset(
    [
        "if",
        "unless",
        "when",
        "whenever",
        "because",
        "except",
        "until",
        "wenn",
        "falls",
        "weil",
        "sofern",
        "solange",
        "bevor",
        "nachdem",
    ]
)
_REPORTING = frozenset(["says", "said", "say", "states", "claims", "thinks", "believes", "denies", "sagt", "sagte"])
_BEFORE_MONTHS = frozenset(
    ["in", "by", "of", "since", "until", "till", "before", "after", "from", "to", "during", "every", "each", "last",
     "next", "this", "early", "late", "mid", "for", "between", "through", "around", "im", "bis", "seit", "ab"]
)  # fmt: skip
_COUNTED = re.compile(r"\d+-[a-z]{3,}")  # 15-minute
_POSSESSIVE = re.compile(r"['’]s?$")
_LIST = re.compile(r"^\s*(?:[-*+•▪◦]|\d{1,3}[.)]|[a-z][.)])\s+|^#{1,6}\s+|^>\s?")
_RULE = re.compile(r"^[\s|:+-]*-[\s|:+-]*$")
_EMPHASIS = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`+")
_GERMAN = frozenset(
    [
        "der",
        "die",
        "das",
        "und",
        "ist",
        "nicht",
        "ein",
        "eine",
        "im",
        "den",
        "dem",
        "zu",
        "mit",
        "von",
        "auf",
        "für",
        "wird",
        "sind",
        "wenn",
        "bei",
        "nach",
        "auch",
        "des",
        "sie",
        "es",
        "an",
    ]
)
_ENGLISH = frozenset(
    [
        "the",
        "a",
        "an",
        "is",
        "are",
        "of",
        "to",
        "in",
        "and",
        "not",
        "for",
        "with",
        "on",
        "by",
        "it",
        "be",
        "if",
        "that",
        "this",
        "or",
        "as",
        "at",
        "from",
        "you",
        "may",
        "can",
        "must",
        "has",
        "have",
    ]
)
_OTHERS = frozenset(
    [
        "le",
        "la",
        "les",
        "des",
        "et",
        "est",
        "pas",
        "une",
        "dans",
        "pour",
        "que",
        "qui",
        "sur",
        "au",
        "du",
        "il",
        "el",
        "los",
        "las",
        "y",
        "es",
        "no",
        "en",
        "por",
        "para",
        "con",
        "una",
        "del",
        "se",
        "lo",
        "di",
        "che",
        "non",
        "per",
        "il",
        "gli",
        "della",
        "o",
        "os",
        "as",
        "e",
        "um",
        "uma",
        "het",
        "een",
        "niet",
        "van",
        "en",
        "op",
        "med",
        "och",
        "att",
        "är",
        "som",
        "på",
        "av",
        "i",
        "de",
    ]
)
_ALSO_ENGLISH = frozenset(["no", "per", "as", "i", "on", "an", "in", "e", "o", "y"])  # alone they tell nothing
_NOT_LATIN = re.compile(r"[^\W\d_a-zA-Z\u00aa-\u024f\u1e00-\u1eff]")
_NT = re.compile(
    r"\b(can|do|does|did|is|are|was|were|has|have|had|wo|would|should|must|could|need)n['’]t\b", re.IGNORECASE
)
_REWRITES = tuple(
    (re.compile(pattern, re.IGNORECASE), into)
    for pattern, into in (
        (r"\bper cent\b", "percent"),
        (r"\bhalf an hour\b", "30 minutes"),
        (r"\b(?:a )?quarter of an hour\b", "15 minutes"),
        (r"\ba (?=(?:hundred|thousand|million|dozen)\b)", "one "),
        (r"\bone time\b", "once"),
        (r"\bwo not\b", "will not"),
        (r"\bcannot\b", "can not"),
        (r"\b(?:with|has|have|contains?) no\b", "without"),
        (r"\brather than\b|\binstead of\b", ", not"),
        (r"\bat once\b|\bright away\b", "immediately"),
        (r"\b(?:any ?more|any longer)\b", "anymore"),
        (r"\bno longer\b", "not anymore"),
        (r"\bno (?:more|longer|fewer|less) than\b", "at most"),
        (r"\bout of\b", "outof"),
        (r"\bas soon as\b", "when"),
        (r"\b(?:provided|as long as|in case)\b", "if"),
        (r"\bnicht mehr\b", "nicht nochmehr"),
        (r"\bzwei mal\b", "zweimal"),
        (r"\bin advance\b", "ahead"),
        (r"\beach other\b", ""),
        (r"\bnot only\b", "also"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Word:
    """One token. ``clause`` and ``segment`` count the clauses of its text, and what stronger marks part."""

    text: str  # folded
    stem: str
    kind: Kind
    clause: int
    segment: int
    start: bool  # of a clause
    negated: bool = False
    quantity: Quantity | None = None
    cell: int = 0  # of a table's row
    proper: bool = False  # the name of somebody or of a place, as far as English capitals tell


@dataclass(frozen=True)
class Unit:
    """A sentence that was read."""

    raw: str
    words: tuple[Word, ...]

    @cached_property
    def folded(self) -> str:
        """All words, with a blank at both ends, for phrases."""
        return f" {' '.join(word.text for word in self.words)} "

    @cached_property
    def texts(self) -> frozenset[str]:
        """Its words."""
        return frozenset(word.text for word in self.words)

    @cached_property
    def stems(self) -> frozenset[str]:
        """Stems of all its words."""
        return frozenset(word.stem for word in self.words)

    @cached_property
    def content(self) -> tuple[int, ...]:
        """Indices of the words that claim something, numbers without their units' words left out."""
        return tuple(i for i, word in enumerate(self.words) if word.kind in ("content", "light", "name"))

    @cached_property
    def open(self) -> bool:
        """Whether it leaves its subject to what stands before it: a pronoun, a list item, a row, an order."""
        if self.texts & w.ANAPHORS or "|" in self.raw or not self.texts & w.SUBJECT_ENDS:
            return True
        # "More than 300 is suspicious.", "Single parents have eighteen."
        before = next((i for i, word in enumerate(self.words) if word.text in w.SUBJECT_ENDS), 0)
        return self.words[-1].quantity is not None or not any(
            word.kind in ("content", "name") for word in self.words[:before]
        )

    @cached_property
    def identity(self) -> str:
        """What two texts in a row share when they are word for word the same, signs and marks of numbers included."""
        text = unicodedata.normalize("NFKC", unmarked(self.raw)).casefold()
        return " ".join(re.findall(r"[-−+<>=≤≥]?\d[\w.,:%/-]*\w|[\w%€$£°&@#]+|[<>=≤≥]", text))


@dataclass(frozen=True)
class Window:
    """``base`` says it; ``before`` may tell what a pronoun in it means; ``span`` is of both in the source's text."""

    number: int
    base: Unit
    before: Unit | None
    header: Unit | None  # of its table
    context: frozenset[str]  # stems
    context_units: frozenset[str]
    span: tuple[int, int]
    text: str


def unmarked(text: str) -> str:
    """Without list marks, emphasis, and bars at the ends of a row."""
    return _EMPHASIS.sub("", _LIST.sub("", text)).strip().strip("|").strip()


def language(text: str) -> Literal["en", "de", "other"]:
    """By its letters and most frequent words. 'other' is also what cannot be told from foreign ones."""
    if len(_NOT_LATIN.findall(text)) > 0.2 * max(1, sum(c.isalpha() for c in text)):
        return "other"
    found = re.findall(r"[^\W\d_]+", text.lower())
    english, german = sum(x in _ENGLISH for x in found), sum(x in _GERMAN for x in found)
    others = sum(x in _OTHERS for x in found)
    if not any(x in _OTHERS and x not in _ALSO_ENGLISH for x in found):
        others = 0
    if others > max(english, german):
        return "other"
    if german > english:
        return "de"
    if english or (text.isascii() and not others):
        return "en"
    return "de" if re.search("[äöüß]", text) and not re.search("[^\x00-\x7fäöüßÄÖÜ–—„“”’‚‘…°€§]", text) else "other"


@lru_cache(maxsize=4096)
def _names(raw: str) -> frozenset[str]:
    return frozenset(analysis.identifiers(raw))


def read(raw: str) -> Unit:
    """A sentence, read."""
    plain = re.sub(r"\b([Cc])an['’]t\b", r"\1an not", unmarked(raw))
    plain = _NT.sub(r"\1 not", plain)
    for pattern, into in _REWRITES:
        plain = pattern.sub(into, plain)
    tokens = [match.group() for match in _TOKEN.finditer(unicodedata.normalize("NFKC", plain))]
    names = analysis.identifiers(plain)
    pieces: list[tuple[str, str, bool]] = []  # folded, as written, whether it is a name of code or a product
    for token in tokens:
        folded = analysis.plain(token)
        if _label(token, pieces):
            pieces.append((f"{folded} letter", token, True))  # not the article
        elif token.casefold() in names and not _COUNTED.fullmatch(token):
            pieces.append((token.casefold(), token, True))
        elif value(folded) or len(folded) == 1:
            pieces.append((folded, token, False))
        else:
            pieces.extend(
                (part, token, False) for part in re.split(r"[-./:\\#+@*_]+", _POSSESSIVE.sub("", folded)) if part
            )
    texts = [piece[0] for piece in pieces]
    found = quantities(texts)
    english = language(raw) == "en"
    made: list[Word] = []
    clause = segment = cell = 0
    start = True
    for i, (text, written, is_name) in enumerate(pieces):
        if text in _CLAUSE:
            clause += 1
            segment += text in _STRONG
            cell += text == "|"
            start = True
            continue
        if (text in _SUBORDINATE and i) or (text in ("that", "dass") and i and texts[i - 1] in _REPORTING):
            clause += 1
            start = True
        if text in w.JOINTS and i:
            clause += 1
            segment += 1
            start = True
        quantity = found.get(i)
        kind: Kind = "name" if is_name else "number" if quantity is not None else _kind(text, texts, i)
        day = _date(text, written, i, pieces)
        if day is not None and not is_name:
            text = f"{text} month" if text == "may" else text  # not the verb
            kind, quantity = "number", Quantity(frozenset((day,)), None)
        made.append(
            Word(
                text,
                text if is_name else w.stem(text),
                kind,
                clause,
                segment,
                start,
                False,
                quantity,
                cell,
                english and i > 0 and _proper(written, pieces[i - 1][0], kind),
            )
        )
        start = False
    return Unit(raw, _with_polarity(made))


def _label(token: str, before: Sequence[tuple[str, str, bool]]) -> bool:
    """Whether a single capital names something: buoys A to F, but not "A buoy", "I" or 12 V."""
    if len(token) != 1 or not ("A" <= token <= "Z") or token == "I" or (token == "A" and not before):
        return False
    return not before or (before[-1][0] not in ("°", ".") and not value(before[-1][0]))


def _proper(written: str, before: str, kind: Kind) -> bool:
    return kind == "content" and written[:1].isupper() and before not in _CLAUSE and before not in ("'", '"', "„", "“")


def _kind(text: str, texts: list[str], i: int) -> Kind:
    # The words that decide are compared by rules of their own.
    if text in w.STOP or text in w.NEGATORS or text in w.CONDITIONS or text in w.UNIVERSAL or text in w.ONLY:
        return "stop"
    if text in ("up", "least", "most", "more", "less", "fewer", "mehr", "weniger"):
        return "stop"
    if (text in _HEDGE_WORDS or text in w.POSSIBLE) and text not in ("one",):
        return "stop"
    if (
        unit(text) is not None
        and i
        and (value(texts[i - 1]) or texts[i - 1] in ARTICLES or (i > 1 and value(texts[i - 2])))
    ):
        return "stop"
    if unit(text) is not None and len(text) == 1:
        return "stop"
    return "light" if text in w.LIGHT else "content"


_HEDGE_WORDS = frozenset(
    word for group in (*w.HEDGES.values(), *w.BOUNDS.values()) for word in group if " " not in word
)  # fmt: skip


def _date(text: str, written: str, i: int, pieces: list[tuple[str, str, bool]]) -> str | None:
    """A month or day of the week that is meant as one: "May" only beside a number, or behind a word that dates have."""
    if text in w.WEEKDAYS and len(text) > 3:
        return f"weekday {w.WEEKDAYS[text]}"
    if text not in w.MONTHS:
        return None
    beside = [pieces[j][0] for j in (i - 1, i + 1) if 0 <= j < len(pieces)]
    sure = len(text) > 3 and text not in ("march", "mai")
    dated = any(value(x) for x in beside) or (i > 0 and pieces[i - 1][0] in _BEFORE_MONTHS)
    if written[:1].isupper() and (sure or dated or text in ("mai", "march")):
        return f"month {w.MONTHS[text]}"
    return None


def _with_polarity(made: list[Word]) -> tuple[Word, ...]:
    """A negator turns its clause round; so do two of them back."""
    turns: dict[int, int] = {}
    for i, word in enumerate(made):
        if word.text in ("nor", "noch") and any(x.text in ("neither", "weder") for x in made[:i]):
            continue  # one with it
        if word.text in w.NEGATORS:
            turns[word.clause] = turns.get(word.clause, 0) + 1
    return tuple(
        Word(
            x.text,
            x.stem,
            x.kind,
            x.clause,
            x.segment,
            x.start,
            turns.get(x.clause, 0) % 2 == 1,
            x.quantity,
            x.cell,
            x.proper,
        )
        for x in made
    )


def windows(source: Source) -> list[Window]:
    """Of a source, in order. A limiting sentence ("unless …") belongs to the one before it."""
    text = source.text
    spans = [span for span, _ in zip(iter_sentences(text), range(MOST_SENTENCES), strict=False)]
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and is_limiting(text[start:end]):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    # The title and headings as they stand over the passage.
    fixed = frozenset(x for part in (source.passage.title, *source.passage.heading_path) for x in read(part).stems)
    fixed_units = frozenset(u for part in (source.passage.title, *source.passage.heading_path) for u in _units(part))
    found: list[Window] = []
    before: Unit | None = None
    before_start = 0
    header: Unit | None = None
    lead: Unit | None = None
    rows: list[tuple[str, int, int]] = [(text[a:b], a, b) for a, b in joined]
    for i, (raw, start, end) in enumerate(rows):
        if _RULE.fullmatch(raw):
            continue
        unit_ = read(raw)
        if "|" in raw:
            if i + 1 < len(rows) and _RULE.fullmatch(rows[i + 1][0]):
                header = unit_
                continue
        else:
            header = None
        is_item = _LIST.match(raw) is not None
        over = header if "|" in raw else lead if is_item else None
        context = fixed | (over.stems if over is not None else frozenset())
        units = fixed_units | (_units(over.raw) if over is not None else frozenset())
        found.append(Window(source.number, unit_, None, header, context, units, (start, end), raw))
        if before is not None and not is_item and "|" not in raw and unit_.open:
            whole = text[before_start:end]
            found.append(Window(source.number, unit_, before, None, context, units, (before_start, end), whole))
        if raw.rstrip().endswith(":"):
            lead = unit_
        elif not is_item:
            lead = None
        before, before_start = unit_, start
    return found


def _units(text: str) -> frozenset[str]:
    return frozenset(u for word in re.findall(r"[^\W\d_]+|[%°€$£]", analysis.plain(text)) if (u := unit(word)))


_SPLIT = re.compile(
    r"(;\s+|,?\s+(?:and|but|while|whereas|und|aber|sondern)\s+|\s+[–—]\s+|,\s+(?=(?:so|which|because|since|weil|da)\b))",
    re.IGNORECASE,
)
MOST_PARTS = 4


def clauses(text: str) -> list[str]:
    """The parts of a sentence that were joined, each with enough words to claim something; empty for one that is
    whole."""
    pieces = _SPLIT.split(text)
    parts = [pieces[0]]
    for mark, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if _claims(piece) and _claims(parts[-1]) and (mark.strip() == ";" or not _is_noun(piece)):
            parts.append(piece)
        else:
            parts[-1] += mark + piece
    parts = [part.strip(" ,.") for part in parts]
    return [parts[0], *(_with_subject(part, parts[0]) for part in parts[1:])] if 1 < len(parts) <= MOST_PARTS else []


def _with_subject(part: str, first: str) -> str:
    """ "… and are accompanied" is said of the same as the first part: its words up to its verb, or its first noun."""
    words = part.split()
    if analysis.plain(words[0]) not in w.SUBJECT_ENDS:
        return part
    before = first.split()
    folded = [analysis.plain(word) for word in before]
    if folded[0] in w.CONDITIONS or "," in first:
        return part
    ends = next((i for i, word in enumerate(folded) if word in w.SUBJECT_ENDS), None)
    if ends is None:
        ends = next((i + 1 for i, word in enumerate(folded) if word not in w.STOP and not value(word)), 0)
    return " ".join([*before[:ends], *words])


def _is_noun(text: str) -> bool:
    """Whether a part is a noun with what belongs to it, of the clause before: "… and gloves for the forge"."""
    words = [analysis.plain(word) for word in text.split()]
    if w.SUBJECT_ENDS & set(words) or not {"to", "of", "for", "zu", "fur", "von"} & set(words[1:3]):
        return False
    verbs = ("s", "ed") if language(text) == "en" else ("t", "te", "en", "ten")
    return not any(word.strip(".,").endswith(verbs) for word in words[2:])


def _claims(text: str) -> bool:
    return sum(word.kind in ("content", "name", "number") for word in read(text).words) > 1
