"""A public and a private folder that swap their names in one commit never show each other's pages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from consumers.owner_engine import OwnerEngine
from consumers.owner_jobs import Pace
from pipeline.clock import SystemClock
from pipeline.closures import closure_among
from pipeline.observe import Metrics
from pipeline.settings_sources import GitSettings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.git.system import GitRepository
from pipeline.sources.ledger import Ledger
from pipeline.sources.remote.source import RemoteSource, Rhythm
from schemas.access import AccessRule
from schemas.documents import PrincipalPart, PrincipalRecord
from schemas.events import ACCESS_EVENT, AccessSet, MembershipSet
from schemas.topics import Topic
from tests.unit.owner.support import MemoryLog, MemoryOwnerLog


def git(repo: Path, *args: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=repo, check=True, capture_output=True
    )


def run(repo: Path, cache: Path, log: MemoryLog) -> None:
    clock = SystemClock()
    system = GitRepository(
        GitSettings(name="kb", tenant="acme", type="git", url=str(repo)), clock, max_bytes=1 << 20, cache=cache
    )

    def connect(ledger: Ledger) -> RemoteSource:
        return RemoteSource(system, clock, Rhythm(poll_s=0.1), known=ledger.state, states=ledger.states)

    engine = OwnerEngine(
        MemoryOwnerLog(log, clock), connect, tenant="acme", source="kb", clock=clock, bodies=BodyPlacer(None),
        observed=Metrics(), pace=Pace(rest_s=0.0, idle_s=0.01),
    )  # fmt: skip
    engine.start()
    for _ in range(60):
        engine.step()
    engine.close()


def readable_at_some_moment(log: MemoryLog, user: str) -> set[str]:
    """Documents that the log let somebody read, rule and memberships taken together record by record."""
    records: dict[str, PrincipalRecord] = {}
    rules: dict[str, AccessRule] = {}
    found = set()
    for record in log.records:
        if record.topic == Topic.MEMBERSHIP:
            e = MembershipSet.model_validate_json(record.value or b"")
            part = PrincipalPart(parents=e.parents, removed=e.removed, version=e.version)
            records[e.principal] = PrincipalRecord.of("acme", e.principal, {"kb": part})
        elif record.topic == Topic.ACCESS:
            event = ACCESS_EVENT.validate_json(record.value or b"")
            if isinstance(event, AccessSet):
                rules[event.document.id] = event.rule
        else:
            continue
        mine = closure_among(user, records, 0).principals
        for id_, rule in rules.items():
            allowed = all(any(g.principal in mine for g in c.any_of) for c in rule.clauses)
            if allowed and not set(rule.deny) & mine:
                found.add(id_)
    return found


@pytest.mark.requirement("A8", "I3")
def test_folders_that_swap_while_the_owner_is_away_open_nothing(tmp_path: Path) -> None:
    repo, cache = tmp_path / "repo", tmp_path / "cache"
    cache.mkdir()
    for path, text in {
        "groups.yaml": "users: [ann, bob]\n",
        "open/notes.md": "# Notes\n\nfor everybody to read, with words of their own\n",
        "closed/secret.md": "# Secret\n\nsalaries of the whole company, one by one\n",
        "closed/.access.yaml": "allow: [user:ann]\n",
    }.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "one")
    log = MemoryLog()
    run(repo, cache, log)
    assert {i.split("@")[0] for i in readable_at_some_moment(log, "user:bob")} == {"open/notes.md"}
    git(repo, "mv", "open", "tmp")
    git(repo, "mv", "closed", "open")
    git(repo, "mv", "tmp", "closed")
    git(repo, "commit", "-qm", "swap")
    run(repo, cache, log)
    assert {i.split("@")[0] for i in readable_at_some_moment(log, "user:bob")} == {"open/notes.md"}
