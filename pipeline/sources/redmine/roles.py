"""What a role lets somebody read in a project.

The API tells permissions and how far issues are visible, and keeps silent about trackers: a role may be limited to the
issues of some. So an account that has a role alone is looked for, and the server is asked which trackers that account
sees. Where nobody has it alone, those who have it with others get what is sure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.sources.redmine.api import Api, Refused, ids
from pipeline.sources.redmine.rows import Row

TRUST_S = 60.0
"""Seconds for which an answer about trackers stands: a limit that is put on a role shows within them."""
ISSUES, WIKI = "issue_tracking", "wiki"
_REACH = {"own": 0, "default": 1, "all": 2}
_NAMES = ("view", "issues", "private")  # a role of reach n has the first n + 1


@dataclass(frozen=True)
class Role:
    """``reach``: 0 own and assigned issues, 1 also all others that are not private, 2 all."""

    id: int
    permissions: frozenset[str]
    reach: int

    @staticmethod
    def of(row: Row) -> Role:
        """A role as the API shows it. Visibility that is not known reaches nothing but own issues."""
        return Role(row["id"], frozenset(row.get("permissions") or ()), _REACH.get(row.get("issues_visibility", ""), 0))

    @property
    def sees_issues(self) -> bool:
        return "view_issues" in self.permissions


@dataclass(frozen=True)
class Project:
    """A project that can be read: active or closed."""

    id: int
    public: bool
    modules: frozenset[str]
    trackers: frozenset[int]

    @staticmethod
    def of(row: Row) -> Project:
        modules = frozenset(m["name"] for m in row.get("enabled_modules") or ())
        return Project(row["id"], row.get("is_public") is True, modules, frozenset(ids(row.get("trackers"))))

    def everything(self) -> frozenset[str]:
        """What an administrator may read."""
        issues = {*_NAMES, "notes"} if ISSUES in self.modules else set()
        return frozenset(issues | ({"wiki"} if WIKI in self.modules else set()))


@dataclass(frozen=True)
class Holder:
    """Somebody who has exactly these roles in a project; ``login`` "" is an anonymous visitor."""

    project: Project
    roles: frozenset[int]
    login: str


@dataclass
class Rights:
    """Rights of sets of roles, as of one look at everything."""

    roles: dict[int, Role]
    limits: dict[int, frozenset[int] | None] = field(default_factory=dict)  # role → trackers; None: all
    seen: dict[tuple[int, frozenset[int], bool], frozenset[int]] = field(
        default_factory=dict
    )  # where that is not known

    def of(self, roles: Iterable[int], project: Project, *, anonymous: bool = False) -> frozenset[str]:
        """Names of the project's audiences in which holders of these roles are."""
        held = [self.roles[r] for r in roles if r in self.roles]
        found: set[str] = set()
        if WIKI in project.modules and any("view_wiki_pages" in r.permissions for r in held):
            found.add("wiki")
        if ISSUES not in project.modules:
            return frozenset(found)
        if any("view_private_notes" in r.permissions for r in held):
            found.add("notes")
        seeing = [r for r in held if r.sees_issues]
        for role in seeing:
            if role.id in self.limits:
                found |= _issues(role.reach, self.limits[role.id])
        if any(r.id not in self.limits for r in seeing):
            trackers = self.seen.get((project.id, frozenset(r.id for r in seeing), anonymous), frozenset())
            found |= _issues(min(r.reach for r in seeing), trackers)
        return frozenset(found)


def _issues(reach: int, trackers: frozenset[int] | None) -> set[str]:
    ends = [""] if trackers is None else [f"/tracker:{t}" for t in trackers]
    return {f"{name}{end}" for name in _NAMES[: reach + 1] for end in ends}


class Trackers:
    """Finds out which trackers each role sees."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._asked: dict[tuple[int, str, frozenset[int], frozenset[int]], tuple[float, frozenset[int]]] = {}

    def rights(self, roles: dict[int, Role], holders: Iterable[Holder]) -> Rights:
        """Rights of everybody named in ``holders``. Raises SourceUnavailable."""
        rights = Rights(roles)
        sets: dict[tuple[int, frozenset[int], bool], Holder] = {}
        for one in holders:
            seeing = frozenset(r for r in one.roles if r in roles and roles[r].sees_issues)
            if seeing and ISSUES in one.project.modules:
                sets.setdefault((one.project.id, seeing, one.login == ""), Holder(one.project, seeing, one.login))
        for role in sorted({r for _, held, _ in sets for r in held}):
            self._limit(role, [h for h in sets.values() if role in h.roles], rights)
        for key, one in sets.items():
            if any(r not in rights.limits for r in one.roles):
                rights.seen[key] = self._visible(one)
        self._forget()
        return rights

    def _limit(self, role: int, holders: list[Holder], rights: Rights) -> None:
        """What the role is limited to, if those who have it alone show it for every tracker where anybody has it."""
        needed = frozenset[int]().union(*(h.project.trackers for h in holders))
        known: set[int] = set()
        allowed: set[int] = set()
        for one in sorted((h for h in holders if len(h.roles) == 1), key=lambda h: (h.project.id, h.login)):
            if not one.project.trackers <= known:
                known |= one.project.trackers
                allowed |= self._visible(one)
        if known >= needed:
            rights.limits[role] = None if allowed >= needed else frozenset(allowed)

    def _visible(self, one: Holder) -> frozenset[int]:
        key = (one.project.id, one.login, one.roles, one.project.trackers)
        at, known = self._asked.get(key, (0.0, frozenset[int]()))
        now = self._clock.elapsed()
        if key in self._asked and now - at < TRUST_S:
            return known
        try:
            answer = self._api.get(f"/projects/{one.project.id}.json", {"include": "trackers"}, user=one.login)
        except Refused:  # locked, or no longer a member: the next look shows it
            return frozenset()
        found = frozenset(ids((answer.get("project") or {}).get("trackers"))) & one.project.trackers
        self._asked[key] = (now, found)
        return found

    def _forget(self) -> None:
        now = self._clock.elapsed()
        self._asked = {key: kept for key, kept in self._asked.items() if now - kept[0] < TRUST_S}
