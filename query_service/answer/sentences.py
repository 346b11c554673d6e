"""What a model writes, read as it comes: sentences with the numbers that they cite.

    characters ▸ lines: prose, item, row, code, heading, reference, call ▸ sentences ▸ footnotes ▸ paragraphs ▸ drafts

The result does not depend on how the text is cut into pieces. Headings, references, calls of tools and reasoning are no
part of an answer and are left out. Memory is bounded, whatever is written.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from pipeline.chunk.sentences import sentence_spans
from query_service.answer import lines, marks
from query_service.answer.interface import Draft

PROBE = 24  # characters of a line after which it is known what it is
MOST_SENTENCE = 2000  # characters; what is longer is cut there
MOST_LINE = 4000
MOST_CODE = 6000
MOST_HELD = 8000  # characters of a paragraph that wait for its citation
_Mode = Literal["start", "whole", "prose", "fence", "inside", "json"]

_WHOLE = "|`{<[【#~"
_AFTER = frozenset(" \t])】>.!?…。！？」』”")  # between it and the next character a sentence may end
_BEFORE = frozenset("[【(<^ \t.!?…。！？」』”)]】\"'*`")  # with which no new one is known to begin


class Reading:
    """The reader of one answer. ``refused``: the refusal was written, in any language, whatever stands around it.
    ``garbage``: how many parts were left out because they are calls of tools, role tags, images or chatter."""

    def __init__(self) -> None:
        self.refused = False
        self.garbage = 0
        self._out: list[Draft] = []
        self._mode: _Mode = "start"
        self._line = ""  # not yet known what it is
        self._tail = ""  # prose of which the end is not known
        self._cited: list[tuple[int, list[int]]] = []  # within the tail, where its footnotes were taken out already
        self._marker = ""  # of the item whose first sentence comes
        self._held: list[Draft] = []
        self._flowing = False  # the paragraph has a citation that is not its last
        self._over = False  # a blank line came
        self._code: list[str] | None = []  # None: too much
        self._fence = ""
        self._wrapped = False  # the whole answer stands in a fence
        self._inside = ""
        self._depth = 0
        self._table = lines.Table()
        self._references = False
        self._thinking = False

    def feed(self, text: str) -> list[Draft]:
        """The sentences that are known to be whole now."""
        for char in text:
            self._step(char)
        return self._taken()

    def end(self) -> list[Draft]:
        """The rest."""
        if self._line or self._mode == "fence":
            self._step("\n")
        if self._mode == "fence":
            self._fenced()
        self._finish()
        self._paragraph_ends()
        self._mode, self._line = "start", ""
        return self._taken()

    def _taken(self) -> list[Draft]:
        taken, self._out = self._out, []
        return taken

    # ------------------------------------------------------------ characters

    def _step(self, char: str) -> None:
        if self._mode == "inside":
            self._line = (self._line + char)[-64:]
            if char == ">" and self._line.lower().endswith(f"</{self._inside}>"):
                self._mode, self._line = "start", ""
        elif char == "\n":
            self._ended()
        elif self._mode == "prose":
            self._tail += char
            self._grown(char)
        else:
            self._line += char
            if self._mode == "start":
                self._probe()
            elif self._mode == "whole" and len(self._line) > MOST_LINE:
                self._prose(self._line)
            elif self._mode == "fence" and len(self._line) > MOST_CODE:
                self._line, self._code = "", None
            elif self._mode == "json" and len(self._line) > MOST_LINE:
                self._depth += lines.depth(self._line)
                self._line = ""
        if char == ">" and self._mode in ("start", "whole", "prose"):
            self._opened()

    def _grown(self, char: str) -> None:
        """After a character of prose: cut where a new sentence has begun."""
        if len(self._tail) > MOST_SENTENCE:
            self._finish()
        elif char not in _BEFORE and self._tail[-2:-1] in _AFTER and not lines.ENDS.isdisjoint(self._tail):
            self._cut()

    def _opened(self) -> None:
        """A tag ended: of a call or of reasoning, which goes up to the closing one."""
        text = self._tail if self._mode == "prose" else self._line
        if text.lower().endswith("</think>"):  # all before it was thought
            self._tail, self._line, self._held, self._cited, self._mode = "", "", [], [], "start"
            return
        found = marks.OPENING.search(text)
        if found is None:
            return
        name = found.group("name").lower()
        if self._mode == "prose":
            self._tail = text[: found.start()]
        elif text[: found.start()].strip():
            self._prose(text[: found.start()])
        self.garbage += name not in marks.REASONING.split("|")
        self._mode, self._line, self._inside = "inside", "", name

    # ------------------------------------------------------------ lines

    def _probe(self) -> None:
        bare = self._line.lstrip()
        if not bare:
            return
        if bare[0] in _WHOLE or self._references:
            self._mode = "whole"
        elif len(bare) >= PROBE:
            if lines.is_label(self._line):
                self._mode = "whole"
            else:
                self._begins(self._line)

    def _ended(self) -> None:
        """A line is whole."""
        line, self._line = self._line, ""
        if self._mode == "prose":
            self._mode = "start"
        elif self._mode == "fence":
            self._in_fence(line)
        elif self._mode == "json":
            self._depth += lines.depth(line)
            if self._depth <= 0 or not line.strip():
                self._mode = "start"
        else:
            self._mode = self._classify(line)

    def _classify(self, line: str) -> _Mode:
        """Take a whole line. Tells how the next one is read."""
        if not line.strip():
            self._finish()
            self._table_ends()
            self._over = True
            return "start"
        rest, cited = marks.without_footnotes(line)
        if cited and not marks.has_words(rest):
            self._cite(line, cited)
            return "start"
        if self._dropped(line, bool(cited)):
            return "start"
        row = lines.is_row(line)
        if not row:
            self._table_ends()
        if (fence := lines.FENCE.match(line)) is not None:
            return self._fence_begins(fence)
        if lines.JSON.match(line):
            self._finish()
            self.garbage += 1
            self._depth = lines.depth(line)
            return "json" if self._depth > 0 else "start"
        if row:
            self._finish()
            self._starts_block()
            self._say_rows(self._table.add(line))
        else:
            self._begins(line)
        return "start"

    def _dropped(self, line: str, cited: bool) -> bool:
        """Whether a line is no part of the answer: heading, rule, reference, chatter of an agent."""
        name, heading = lines.name_of(line), lines.heading_of(line)
        if name in marks.REFERENCES and not cited:
            self._references = True
        elif name in marks.THOUGHTS or (name in marks.ACTIONS and (self._thinking or not cited)):
            self._thinking = True
            self.garbage += 1
        elif lines.is_row(line) or not (lines.is_decoration(line) or (self._references and lines.is_reference(line))):
            self._references = False
            if heading is None or cited or heading[-1:] in lines.ENDS:
                return False
        self._finish()
        self._paragraph_ends()
        return True

    def _begins(self, line: str) -> None:
        """A line of prose or an item of a list begins."""
        self._starts_block()
        item = lines.ITEM.match(line)
        if item is not None:
            self._finish()
            mark = item.group("mark")
            self._marker = f"{mark} " if mark[-1] in ".)" else "- "
            line = item.group("rest")
        elif self._tail and not line.lstrip()[:1].islower():
            self._finish()
        self._prose(line)

    def _prose(self, line: str) -> None:
        """Take the beginning of a line, or all of it, as prose."""
        self._starts_block()
        self._mode, self._line = "prose", ""
        if self._tail and not self._tail[-1].isspace():
            self._tail += " "
        for char in line.lstrip() if not self._tail else line:
            self._tail += char
            self._grown(char)

    def _starts_block(self) -> None:
        if self._over:
            self._paragraph_ends()

    # ------------------------------------------------------------ sentences

    def _cut(self) -> None:
        """Say the sentences of the tail but the last one."""
        clean, cited, spans = self._parsed()
        if len(spans) < 2:
            return
        start = spans[-1][0]
        opening = clean[start : start + 1]
        if opening in ("[", "【", "(") and len(clean) - start < 60 and not any(c in clean[start:] for c in "]】)"):
            return  # a footnote of the sentence before it may become of it
        self._say_all(clean, [c for c in cited if c[0] <= start], spans[:-1])
        self._tail = clean[start:]
        self._cited = [(at - start, numbers) for at, numbers in cited if at > start]

    def _finish(self) -> None:
        """Say what is left of the tail."""
        if self._tail.strip() or self._cited:
            clean, cited, spans = self._parsed()
            self._say_all(clean, cited, spans)
        self._tail, self._cited, self._marker = "", [], ""

    def _parsed(self) -> tuple[str, list[tuple[int, list[int]]], list[tuple[int, int]]]:
        """The tail without footnotes, where these stood, and the spans of its sentences."""
        tail = self._tail if "`" in self._tail or self._cited else self._tail.replace("**", "")
        clean, cited = marks.without_footnotes(tail)
        spans: list[tuple[int, int]] = []
        for start, end in sentence_spans(clean):
            if spans and clean.count("`", 0, start) % 2:  # within code
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return clean, [*self._cited, *cited], spans

    def _say_all(self, clean: str, cited: list[tuple[int, list[int]]], spans: list[tuple[int, int]]) -> None:
        of: list[list[int]] = [[] for _ in spans]
        for at, numbers in cited:
            index = max((n for n, (start, _) in enumerate(spans) if start < at), default=0)
            if of:
                of[index] += numbers
        for (start, end), numbers in zip(spans, of, strict=True):
            self._say(clean[start:end], numbers)

    def _say(self, written: str, cited: list[int], *, code: bool = False) -> None:
        """A sentence, a row or a block of code is whole."""
        marker, self._marker = self._marker, ""
        if marks.refuses(written):
            self.refused = True
            return
        if marks.is_call(written) if code else marks.is_garbage(written):
            self.garbage += 1
            return
        text = written if code else marks.plain(written)
        if not marks.has_words(text):
            self._marker = marker
            return
        self._starts_block()
        self._hold(Draft(marker + text, tuple(dict.fromkeys(cited))))

    # ------------------------------------------------------------ paragraphs

    def _hold(self, draft: Draft) -> None:
        """Sentences wait while their paragraph has no citation yet: one at its end is offered to all of them."""
        if not self._flowing and not draft.cited and not (self._held and self._held[-1].cited):
            self._held.append(draft)
            self._flowing = sum(len(d.text) for d in self._held) > MOST_HELD
        elif not self._flowing and self._held and not self._held[-1].cited:
            self._held.append(draft)
            return
        else:
            self._flowing = True
            self._held.append(draft)
        if self._flowing:
            self._out += self._held
            self._held = []

    def _cite(self, line: str, cited: list[tuple[int, list[int]]]) -> None:
        """A line of footnotes alone belongs to what stands before it."""
        if self._tail:
            self._tail += f" {line.strip()}"
        elif self._held:
            numbers = (*self._held[-1].cited, *(n for _, found in cited for n in found))
            self._held[-1] = replace(self._held[-1], cited=tuple(dict.fromkeys(numbers)))

    def _paragraph_ends(self) -> None:
        self._over = False
        self._table_ends()
        if self._held and self._held[-1].cited:
            self._held = [d if d.cited else replace(d, cited=self._held[-1].cited) for d in self._held]
        self._out += self._held
        self._held, self._flowing = [], False

    # ------------------------------------------------------------ tables and code

    def _say_rows(self, rows: list[tuple[str, list[int]]]) -> None:
        for words, cited in rows:
            self._say(words, cited)

    def _table_ends(self) -> None:
        self._say_rows(self._table.end())

    def _fence_begins(self, fence: re.Match[str]) -> _Mode:
        self._finish()
        if fence.group(2).lower() in lines.PROSE_FENCES:
            self._wrapped = True
        elif self._wrapped and not fence.group(2):
            self._wrapped = False
        else:
            self._fence, self._code = fence.group(1), []
            return "fence"
        return "start"

    def _in_fence(self, line: str) -> None:
        if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fenced()
        elif self._code is not None:
            self._code.append(line)
            if sum(map(len, self._code)) > MOST_CODE:
                self._code = None

    def _fenced(self) -> None:
        """A block of code is whole. One that is too long says nothing that a source could say."""
        code, self._code = self._code, []
        self._mode = "start"
        if code is None:
            self.garbage += 1
        elif any(line.strip() for line in code):
            self._say(*marks.of_code("\n".join(code).strip("\n")), code=True)
