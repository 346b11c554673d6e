"""Where in the decoded source a block's words stand.

No reader keeps offsets, so blocks are aligned with the source afterwards, whatever its format: in reading order, each
block is looked for behind the one before it, and its characters are followed as long as they run alike; marks, tags,
entities and addresses that only the source has are stepped over. What is searched is bounded by windows, and what goes
beyond them by a budget for the whole document, so time grows with the size of the source and nothing else.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.extract.anchor_pairs import MAX_ANCHORS, MAX_LINES, Run, append, common, pairs_of, without_loose_bars
from schemas.documents import Block

_LOOSE = 1000  # searches for beginnings that the source writes in another form
WINDOW = 4096  # characters of the source in which the next words of a block are looked for
_NEAR = 24  # a word this close is taken without weighing others
_CHOICES = 12  # words of the text that are tried for going on
_NEEDLE = 24  # characters of a word that are looked for
_CANDIDATES = 8
_FAR_LEAST, _FAR = 50_000_000, 8  # what far searches may read in all: characters, and lengths of the source
_SAYING = 4  # characters without which a probe is not worth a far search
_STEPS, _RESYNCS = 1_000_000, 50_000  # places where text and source part, and searches there, for a whole document
_INSIDE_TAG = 512  # cost of taking a word from a tag's attributes
_ENOUGH = 0.4  # share of a block's letters that must be found

# Scripts without spaces: a word is any two of their characters.
_CJK = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[A-Za-z][A-Za-z0-9+.\-]*://\S+|[{_CJK}]{{1,2}}|(?:(?![{_CJK}])[^\W_]){{1,{_NEEDLE}}}")
# What only the source has between two characters of a text: tags, comments, emphasis, escapes, targets of links.
_JUNK = re.compile(
    r"(?:[\s*_~`\u00ad\u200b-\u200f\u2060-\u2064\u202a-\u202e\ufeff]|<[a-zA-Z/!?][^<>]{0,2000}>|\\(?=[^\w\s])"
    r"|\[|\](?:\([^()\s]{1,500}(?:\s\"[^\"\n]{0,200}\")?\))?|&(?:nbsp|shy|ensp|emsp|thinsp|zwnj|#160|#xA0|#xa0|#173);)+"
)
_ANY_FORM = r"(?:&#?\w{1,31};|[^\w\s<]?\w[\u0300-\u036f]{0,3}|[^\w\s<])[*_~`]{0,3}"
_MARKS = re.compile(r"[*_~`]{0,8}")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_CLUSTER = re.compile(
    "[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?|.[\u0300-\u036f\u0591-\u06ed\u0900-\u0dff\u3099\u309a]{1,8}"
)
_INVISIBLE = re.compile(r"[\W_]+")
_LEAD = re.compile(r"\[\^[^\]\n]{1,64}\]:?\s*")  # a footnote's mark


@dataclass
class _Aligner:
    source: str
    cursor: int = 0
    far: int = 0
    resyncs: int = _RESYNCS
    steps: int = _STEPS
    loose: int = _LOOSE
    lines: int = MAX_LINES

    def __post_init__(self) -> None:
        self.far = _FAR_LEAST + _FAR * len(self.source)

    # ------------------------------------------------------------ where a block begins

    def place(self, block: Block, following: Block | None) -> tuple[tuple[int, int], ...]:
        """Anchors of a block; the cursor moves behind it where it was found in order."""
        text = block.text
        verbatim = self.source.find(text, self.cursor, self.cursor + WINDOW + len(text))
        if verbatim >= 0 and (len(text) > 40 or following is None):
            self.cursor = verbatim + len(text)
            return ((0, verbatim),)
        visible = len(_INVISIBLE.sub("", text))
        for begin, in_order in self._starts(text, following):
            runs = self._align(text, begin)
            letters = sum(run.length for run in runs)
            if not runs or letters < _ENOUGH * visible:
                continue
            if in_order and (letters >= 12 or runs[0].source - self.cursor < WINDOW):
                self.cursor = max(self.cursor, runs[-1].source + runs[-1].length)
            pairs = pairs_of(text, runs, self.lines)
            self.lines -= max(0, len(pairs) - MAX_ANCHORS) // 2
            return pairs
        return ()

    def _starts(self, text: str, following: Block | None) -> Iterator[tuple[int, bool]]:
        """Places to begin aligning a text at, the likeliest first, and whether each is behind the cursor."""
        probes = _probes(text)
        before = -1
        for far in (False, True):
            if far and self.cursor < len(self.source):
                loose = self._loose(probes, text)
                if loose >= 0:
                    yield loose, True
                yield self.cursor, True
            for offset, probe in probes:
                found = self._candidates(probe, self.cursor, len(self.source), far=far)
                behind = offset - probes[0][0]
                place = self._back(self._nearest(found, probe, following), behind, self.cursor) if found else -1
                if place >= 0 and place != before:
                    before = place
                    yield place, True
        for offset, probe in probes[:2]:  # set elsewhere: a footnote, a sidebar
            found = self._candidates(probe, 0, self.cursor, far=True)
            if found:
                yield self._back(found[0], offset - probes[0][0], 0), False

    def _loose(self, probes: list[tuple[int, str]], text: str) -> int:
        """Where a text begins whose first words have accents, entities, marks or tags inside them in the source."""
        if not probes or self.loose <= 0:
            return -1
        self.loose -= 1
        words = text[probes[0][0] : probes[0][0] + 48].split()[:3]
        pattern = r"(?:[\s*_~`]|&nbsp;|<[^<>]{0,200}>){1,40}".join(
            "".join(char if char.isascii() and char.isalnum() else _ANY_FORM for char in word[:12]) for word in words
        )
        found = re.compile(pattern).search(self.source, self.cursor, self.cursor + 16 * WINDOW)
        return found.start() if found else -1

    @staticmethod
    def _back(found: int, offset: int, least: int) -> int:
        return found if not offset else max(least, found - 4 * offset - 64)

    def _candidates(self, probe: str, start: int, end: int, *, far: bool) -> list[int]:
        """The first places of a probe as whole words; places inside a tag only where there are no others.

        A far search is paid for with what it reads, and needs a probe that says something.
        """
        if far and len(probe) < _SAYING:
            return []
        found: list[int] = []
        inside: list[int] = []
        end = min(end, start + (self.far if far else WINDOW))
        at = start
        for _ in range(4 * _CANDIDATES):
            at = self.source.find(probe, at, end)
            if at < 0 or len(found) == _CANDIDATES:
                break
            if self._whole(probe, at):
                (inside if self._in_tag(at) else found).append(at)
                end = min(end, at + 4 * WINDOW)
            at += 1
        if far:
            self.far -= max(0, (end if at < 0 else at) - start)
        return found or inside

    def _nearest(self, found: list[int], probe: str, following: Block | None) -> int:
        """Of several places the last before the following block's: the others are a menu's, a title's."""
        if len(found) == 1 or following is None:
            return found[0]
        for _, needle in _probes(following.text)[:2]:
            if len(needle) > 3:
                begin = found[0] + len(probe)
                ahead = self.source.find(needle, begin, found[-1] + len(probe) + WINDOW)
                if ahead >= 0:
                    return max(place for place in found if place + len(probe) <= ahead)
        return found[0]

    def _whole(self, needle: str, at: int) -> bool:
        """Whether the needle stands there as a word of its own, not inside a longer one."""
        before, after = self.source[at - 1 : at], self.source[at + len(needle) : at + len(needle) + 1]
        return not (_joins(before, needle[0]) or (len(needle) < _NEEDLE and _joins(needle[-1], after)))

    def _in_tag(self, at: int) -> bool:
        opened = self.source.rfind("<", max(0, at - 2000), at)
        return (
            opened >= 0
            and (self.source[opened + 1 : opened + 2].isalpha() or self.source.startswith(("/", "!"), opened + 1))
            and self.source.find(">", opened, at) < 0
            and self.source.find(">", at, at + 2000) >= 0
        )

    # ------------------------------------------------------------ inside a block

    def _align(self, text: str, begin: int) -> list[Run]:
        """Runs of equal characters from ``begin`` of the source on, ascending in both."""
        runs: list[Run] = []
        t, s = 0, begin
        while t < len(text):
            length = common(text, t, self.source, s)
            if length:
                append(runs, text, t, s, length)
                t, s = t + length, s + length
                continue
            self.steps -= 1
            step = self._step(text, t, s) if self.steps > 0 else None
            if step is None:
                break
            t, s = step
        return without_loose_bars(runs, text, self.source)

    def _step(self, text: str, t: int, s: int) -> tuple[int, int] | None:
        """The next place where both may run alike again, or None at the end of what can be found."""
        source = self.source
        single = _ENTITY.match(source, s) or _CLUSTER.match(source, s)
        if single:
            raw = single.group()
            shown = html.unescape(raw) if raw[0] == "&" else unicodedata.normalize("NFC", raw)
            shown = " " if shown.isspace() else shown
            if shown != raw and text.startswith(shown, t):
                return t + len(shown), single.end()
        tt = t
        while tt < len(text) and text[tt].isspace():
            tt += 1
        junk = _JUNK.match(source, s, s + WINDOW)
        ss = junk.end() if junk else s
        for at in (tt, _MARKS.match(text, tt).end()):  # type: ignore[union-attr]
            if (at, ss) != (t, s) and at < len(text) and self._goes_on(text, at, ss):
                return at, ss
        return self._resync(text, t, s)

    def _goes_on(self, text: str, t: int, s: int) -> bool:
        source = self.source
        if source.startswith(text[t : t + 1], s):
            return True
        entity = _ENTITY.match(source, s)
        if entity and text.startswith(html.unescape(entity.group()), t):
            return True
        cluster = _CLUSTER.match(source, s)
        return cluster is not None and text.startswith(unicodedata.normalize("NFC", cluster.group()), t)

    def _resync(self, text: str, t: int, s: int) -> tuple[int, int] | None:
        """The nearest of the next words that both have, weighed by what is left out on either side."""
        if self.resyncs <= 0:
            return None
        words = _WORD.finditer(text, t)
        best: tuple[int, int, int] | None = None
        last = t
        for choice, match in enumerate(words):
            if choice == _CHOICES or (best is not None and match.start() - t >= best[0]):
                break
            last = match.end()
            needle = match.group()[: 4 * _NEEDLE]
            reach = s + (WINDOW if best is None else min(WINDOW, best[0])) + len(needle)
            if choice == 0:
                near, cost = self._occurrence(needle, s, s + _NEAR + len(needle))
                if near >= 0 and cost < _NEAR:
                    return match.start(), near
                self.resyncs -= 1
            at, cost = self._occurrence(needle, s, reach)
            cost += match.start() - t
            if at >= 0 and (best is None or cost < best[0]):
                best = (cost, match.start(), at)
        if best is not None:
            return best[1], best[2]
        return (last, s) if last > t else None

    def _occurrence(self, needle: str, start: int, end: int) -> tuple[int, int]:
        """The first place of a whole word and what it costs to go there: one inside a tag is a last resort."""
        resort = -1
        at = self.source.find(needle, start, end)
        for _ in range(_CANDIDATES):
            if at < 0:
                break
            if self._whole(needle, at):
                if not self._in_tag(at):
                    return at, at - start
                resort = at if resort < 0 else resort
            at = self.source.find(needle, at + 1, end)
        return resort, resort - start + _INSIDE_TAG


def anchored(blocks: list[Block], source: str) -> list[Block]:
    """The blocks with their anchors: pairs of an offset in the block's text and one in ``source``, both ascending.

    From an anchor to the next one text and source run alike. An anchor at white space or at the end of the text tells
    where the text before it ends in the source; where text and source differ in length up to such an end, the anchors
    are coarse (see ``pipeline.places.source_span``). A block that is not found keeps none.
    """
    aligner = _Aligner(source)
    placed: list[Block] = []
    for index, block in enumerate(blocks):
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        anchors = aligner.place(block, following)
        placed.append(block.model_copy(update={"anchors": anchors}) if anchors else block)
    return placed


def _probes(text: str) -> list[tuple[int, str]]:
    """What a block is looked for by, with its offset: its first words, fewer of them, its longest word."""
    lead = _LEAD.match(text)
    words: list[tuple[int, int]] = []
    for match in _WORD.finditer(text, lead.end() if lead else 0):
        words.append(match.span())
        if len(words) == 40:
            break
    if not words:
        return [(0, text[:64])] if text.strip() else []
    start = words[0][0]
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    probes: list[tuple[int, str]] = []
    for count in (8, 4, 2):
        end = words[min(count, len(words)) - 1][1]
        if start < end <= line_end and (not probes or text[start:end] != probes[-1][1]):
            probes.append((start, text[start:end]))
    longest = max(words, key=lambda span: span[1] - span[0])
    for begin, end in (words[0], longest):
        if not probes or text[begin:end] != probes[-1][1]:
            probes.append((begin, text[begin:end]))
    return probes


def _joins(left: str, right: str) -> bool:
    """Whether two neighbouring characters belong to one word of a script with spaces."""
    return bool(left and right) and left.isalnum() and right.isalnum() and not _unspaced(left) and not _unspaced(right)


def _unspaced(char: str) -> bool:
    return _CJK_CHAR.match(char) is not None


_CJK_CHAR = re.compile(rf"[{_CJK}]")
