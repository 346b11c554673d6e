"""The recorded history of a run: changes with the moments between which they took effect, and queries with answers.

Times are µs of one clock. A change is not a point: it took effect somewhere between being sent and being known to have
taken effect. Content takes effect in each generation by itself, deletions and permissions for all at once.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

NEVER = 2**62
Seen = dict[tuple[str, str], list[tuple[int, int]]]  # by generation and document: (version, µs)


@dataclass(frozen=True)
class ContentChange:
    """An edition of a document, or its deletion (``edition`` None)."""

    document: str
    edition: int | None
    version: int  # given by the gateway
    sent: int
    acknowledged: int  # access lane: a deletion has taken effect by then


@dataclass(frozen=True)
class RuleChange:
    """Who may read a document: any of these principals."""

    document: str
    allow: frozenset[str]
    version: int
    sent: int
    applied: int


@dataclass(frozen=True)
class MemberChange:
    """The groups of a person: whole state."""

    person: str
    groups: frozenset[str]
    sent: int
    applied: int


@dataclass(frozen=True)
class Found:
    """One hit. ``edition`` is what its text says, None where the passage is the same in all editions."""

    document: str
    version: int
    edition: int | None
    chunk_index: int
    chunk_id: str


@dataclass(frozen=True)
class Query:
    """A query that was answered. ``about`` names the document whose own word was asked for, None for a broad one."""

    person: str
    about: str | None
    began: int
    ended: int
    judged: int  # the reply's own moment of the last permission check
    generation: str
    found: tuple[Found, ...]
    foreign: tuple[str, ...] = ()  # hits whose distance the replying generation's encoder and vectors do not give


class Period(NamedTuple):
    """A time [since, until) in which a generation answered. ``strict``: the switch to it must not go back in time."""

    generation: str
    since: int
    until: int = NEVER
    strict: bool = True


@dataclass
class History:
    """Everything that happened.

    ``visible`` says when which content version could be found in a generation, ``refreshed`` when its chunks could be
    found by the readers of which access version.
    """

    content: list[ContentChange] = field(default_factory=list)
    rules: list[RuleChange] = field(default_factory=list)
    members: list[MemberChange] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    visible: Seen = field(default_factory=dict)
    refreshed: Seen = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """One JSON object a line."""
        with path.open("w", encoding="utf-8") as out:
            for kind, items in (
                ("content", self.content), ("rule", self.rules), ("member", self.members), ("query", self.queries)
            ):  # fmt: skip
                for item in items:
                    out.write(json.dumps({"kind": kind, **asdict(item)}, default=sorted) + "\n")
            for kind, times in (("visible", self.visible), ("refreshed", self.refreshed)):
                for (generation, document), seen in sorted(times.items()):
                    out.write(json.dumps({"kind": kind, "in": generation, "of": document, "at": seen}) + "\n")


@dataclass(frozen=True)
class State(Generic[T]):
    """A value that held at most during [earliest, latest]."""

    value: T
    earliest: int
    latest: int


@dataclass
class Verdict:
    """Counts of wrong answers, and a few of each told in full."""

    queries: int = 0
    mixed: int = 0
    missed: int = 0
    doubled: int = 0
    forbidden: int = 0
    stale: int = 0
    regressed: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, what: str, query: Query, document: str, detail: str) -> None:
        """Count one fault."""
        setattr(self, what, getattr(self, what) + 1)
        if len(self.examples) < 50:
            self.examples.append(
                f"{what}: {document} asked by {query.person} of {query.generation} in [{query.began}, {query.ended}], "
                f"judged {query.judged}: {detail}"
            )

    @property
    def right(self) -> bool:
        """Nothing was wrong."""
        wrong = self.mixed or self.missed or self.doubled or self.forbidden or self.stale or self.regressed
        return not wrong


class Model:
    """The states of documents and people as intervals, from a history."""

    def __init__(self, history: History) -> None:
        self._content: dict[str, list[ContentChange]] = {}
        for change in history.content:
            self._content.setdefault(change.document, []).append(change)
        self._rules: dict[str, list[RuleChange]] = {}
        for rule in history.rules:
            self._rules.setdefault(rule.document, []).append(rule)
        self._members: dict[str, list[MemberChange]] = {}
        for member in history.members:
            self._members.setdefault(member.person, []).append(member)
        self.editions = {(c.document, c.version): c.edition for c in history.content}
        self._visible = {key: _earliest_by_version(seen) for key, seen in history.visible.items()}
        self._refreshed = {key: _earliest_by_version(seen) for key, seen in history.refreshed.items()}
        self._states: dict[tuple[str, str], list[State[int | None]]] = {}

    def content(self, generation: str, document: str) -> list[State[int | None]]:
        """The editions of a document in a generation, oldest first; before the first one there is none."""
        key = (generation, document)
        if key not in self._states:
            changes = self._content.get(document, [])
            self._states[key] = _intervals(
                [(c.edition, c.sent, self.confirmed(generation, c)) for c in changes], before=[None]
            )
        return self._states[key]

    def confirmed(self, generation: str, change: ContentChange) -> int:
        """When the change, or a newer one, certainly stood in the generation."""
        if change.edition is None:
            return change.acknowledged
        return _since(self._visible, (generation, change.document), change.version)

    def possible(self, generation: str, document: str, first: int, last: int) -> set[int | None]:
        """Editions that the document may have had in the generation within [first, last]."""
        return set(_within(self.content(generation, document), first, last))

    def older(self, generation: str, moment: int, document: str, versions: set[int]) -> bool:
        """Whether all these versions were certainly replaced in the generation before the moment."""
        replaced = [
            change.version
            for change, state in zip(
                self._content.get(document, []), self.content(generation, document)[1:], strict=True
            )
            if state.latest < moment
        ]
        return bool(replaced) and max(versions) <= max(replaced)

    def may_read(self, person: str, document: str, first: int, last: int, generation: str | None = None) -> set[bool]:
        """What the permissions may have said within [first, last].

        With a generation: what they may have said there, where a wider rule lets people find the document only once
        its chunks carry it, and once the content that it was read with stands.
        """
        rules = self._rules.get(document, [])
        stood = [(r.allow, r.sent, self._effective(r, generation)) for r in rules]
        allowed = _within(_intervals(stood, before=[frozenset[str]()]), first, last)
        members = [(m.groups, m.sent, m.applied) for m in self._members.get(person, [])]
        mine = [{f"user:{person}", "everyone", *groups} for groups in _within(_intervals(members), first, last)]
        if not mine:
            return {False}  # nobody
        return {bool(rule & each) for rule in allowed for each in mine}

    def _effective(self, rule: RuleChange, generation: str | None) -> int:
        if generation is None:
            return rule.applied
        content = [c for c in self._content.get(rule.document, []) if c.sent <= rule.sent]
        stands = self.confirmed(generation, content[-1]) if content else NEVER
        return max(rule.applied, stands, _since(self._refreshed, (generation, rule.document), rule.version))


def judge(history: History, served: Sequence[Period] = ()) -> Verdict:
    """Every query against the model. ``served``: which generation answered when, in order.

    * mixed: passages of two editions of a document, a passage that is not of the version its hit names, or a hit that
      another generation's vectors gave.
    * doubled: one passage twice.
    * forbidden: a document that no state since the last check began lets the person read, deletions included.
    * stale: an edition, or a deleted document, that was certainly replaced before the query began.
    * regressed: an edition that the generation which served before had replaced before the switch: it went back.
    * missed: the document asked for by its own word is not there although it certainly was, and could be read, all the
      while.
    """
    model, verdict = Model(history), Verdict(queries=len(history.queries))
    for query in history.queries:
        _judge_one(model, query, verdict, _switch(query, served))
    return verdict


def _switch(query: Query, served: Sequence[Period]) -> tuple[str, int] | None:
    """The generation that served before the one that answered, and when that ended."""
    begun = [period for period in served if period.since <= query.ended]
    mine = [number for number, period in enumerate(begun) if period.generation == query.generation]
    if not mine or mine[-1] == 0 or not begun[mine[-1]].strict:
        return None
    return begun[mine[-1] - 1].generation, begun[mine[-1]].since


def _judge_one(model: Model, query: Query, verdict: Verdict, switch: tuple[str, int] | None) -> None:
    by_document: dict[str, list[Found]] = {}
    for hit in query.found:
        by_document.setdefault(hit.document, []).append(hit)
    if query.foreign:
        verdict.note("mixed", query, query.about or "several", f"distances of another generation: {query.foreign}")
    for document, hits in by_document.items():
        _judge_hits(model, query, document, hits, verdict)
        if switch is not None and model.older(*switch, document, {hit.version for hit in hits}):
            verdict.note("regressed", query, document, f"{switch[0]} had replaced it before the switch at {switch[1]}")
    about = query.about
    if about is not None and about not in by_document:
        present = model.possible(query.generation, about, query.began, query.ended)
        if None not in present and _readable(model, query, about):
            verdict.note("missed", query, about, f"possible editions {sorted(map(str, present))}")


def _judge_hits(model: Model, query: Query, document: str, hits: list[Found], verdict: Verdict) -> None:
    versions = {hit.version for hit in hits}
    editions = {model.editions.get((document, version)) for version in versions}
    wrong = [h for h in hits if h.edition is not None and h.edition != model.editions.get((document, h.version))]
    if len(versions) > 1 or wrong:
        verdict.note("mixed", query, document, f"versions {sorted(versions)}, wrong passages {wrong}")
    places = [hit.chunk_index for hit in hits]
    if len(places) != len(set(places)) or len({h.chunk_id for h in hits}) != len(hits):
        verdict.note("doubled", query, document, f"places {sorted(places)}")
    allowed = model.may_read(query.person, document, query.judged, query.ended)
    if True not in allowed or model.possible(query.generation, document, query.judged, query.ended) == {None}:
        verdict.note("forbidden", query, document, "no state from that moment on lets them read it")
    possible = model.possible(query.generation, document, query.began, query.ended)
    if not editions & possible:
        verdict.note("stale", query, document, f"edition {editions}, possible {sorted(map(str, possible))}")


def _readable(model: Model, query: Query, document: str) -> bool:
    """Whether the person could certainly find the document all the while."""
    return model.may_read(query.person, document, query.began, query.ended, query.generation) == {True}


def lags(history: History, served: Iterable[Period]) -> list[float]:
    """Milliseconds from sending to visible of every edition, in the generation that served when it was sent."""
    model, periods = Model(history), list(served)
    found: list[float] = []
    for change in history.content:
        for period in periods:
            if change.edition is not None and period.since <= change.sent < period.until:
                at = model.confirmed(period.generation, change)
                if at < NEVER:
                    found.append((at - change.sent) / 1000)
    return found


def _intervals(changes: Iterable[tuple[T, int, int]], before: Iterable[T] = ()) -> list[State[T]]:
    """(value, sent, certain) in order as states: a value may hold from its sending, and until one that follows it is
    certain. ``before`` are values of the time before the first."""
    items = list(changes)
    certain = [NEVER] * (len(items) + 1)
    for number in range(len(items) - 1, -1, -1):
        certain[number] = min(certain[number + 1], items[number][2])
    states = [State(value, 0, certain[0]) for value in before]
    return states + [State(value, sent, certain[n + 1]) for n, (value, sent, _) in enumerate(items)]


def _within(states: Iterable[State[T]], first: int, last: int) -> list[T]:
    return [s.value for s in states if s.earliest <= last and s.latest >= first]


def _since(times: dict[tuple[str, str], tuple[list[int], list[int]]], key: tuple[str, str], version: int) -> int:
    versions, at = times.get(key, ([], []))
    place = bisect.bisect_left(versions, version)
    return at[place] if place < len(at) else NEVER


def _earliest_by_version(seen: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Versions ascending, and for each the first moment at which it or a newer one was visible."""
    ordered = sorted(seen)
    times = [at for _, at in ordered]
    for number in range(len(times) - 2, -1, -1):
        times[number] = min(times[number], times[number + 1])
    return [version for version, _ in ordered], times
