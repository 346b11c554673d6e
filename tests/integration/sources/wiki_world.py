"""A real wiki with four people, and short ways to follow it, shared by the tests of its connector."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from infra.ports import free_port
from infra.servers.mediawiki import BOT_PASSWORD, CONNECTOR, RESTRICTED, MediaWikiServer
from pipeline.clock import SystemClock
from pipeline.settings_sources import IdentitySettings, MediaWikiSettings, Person
from pipeline.sources.mediawiki.system import MediaWiki
from pipeline.sources.remote.contract import Changes, Fetched, Listed, Readership, Touched
from schemas.access import EVERYONE, Closure
from schemas.keys import DocumentRef

USERS = {"Alice": "finance", "Bob": "", "Carol": "hr", "Dora": ""}
PEOPLE = tuple(Person(id=name.lower()) for name in USERS)


@contextmanager
def running(folder: Path) -> Iterator[MediaWikiServer]:
    """A wiki with its people."""
    server = MediaWikiServer(folder, udp_port=free_port())
    server.start()
    try:
        for name, group in USERS.items():
            server.admin.create(name)
            if group:
                server.admin.groups(name, add=group)
        yield server
    finally:
        server.stop()


def connect(wiki: MediaWikiServer, **more: Any) -> MediaWiki:
    given: dict[str, Any] = {
        "type": "mediawiki",
        "name": "wiki",
        "url": wiki.url,
        "username": f"{CONNECTOR}@sync",
        "password": SecretStr(BOT_PASSWORD),
        "readers": {int(n): tuple(groups) for n, groups in RESTRICTED.items()},
        "identity": IdentitySettings(join="login"),
        "requests_per_s": 500,
        "overlap_s": 5,
    }
    settings = MediaWikiSettings.model_validate(given | more)
    return MediaWiki("acme", settings, PEOPLE, SystemClock(), max_bytes=1_000_000)


def ref(page: int, kind: str = "page") -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", kind=kind, id=str(page))


class Follower:
    """Asks again from the newest cursor until something is told."""

    def __init__(self, system: MediaWiki) -> None:
        self.system = system
        self.cursor = system.start()
        self.drain()

    def drain(self) -> list[Changes]:
        told = [self.system.changes(self.cursor)]
        while told[-1].more:
            told.append(self.system.changes(told[-1].cursor))
        self.cursor = told[-1].cursor
        return told

    def until(self, what: Callable[[Changes], bool], seconds: float = 10.0) -> list[Changes]:
        told: list[Changes] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            told += self.drain()
            if any(what(one) for one in told):
                return told
            time.sleep(0.05)
        raise AssertionError(f"not told in {seconds} s; told were {told}")

    def touched(self, page: int, kind: str = "page") -> Touched:
        told = self.until(lambda c: any(t.document == ref(page, kind) for t in c.touched))
        return next(t for c in told for t in c.touched if t.document == ref(page, kind))

    def gone(self, page: int, kind: str = "page") -> None:
        self.until(lambda c: ref(page, kind) in c.gone)


def fetched(system: MediaWiki, page: int, kind: str = "page") -> Fetched:
    answer = system.fetch(ref(page, kind))
    assert isinstance(answer, Fetched), answer
    return answer


def text(system: MediaWiki, page: int, kind: str = "page") -> str:
    return fetched(system, page, kind).document.body.decode()


def everything(system: MediaWiki) -> dict[DocumentRef, Listed]:
    found: dict[DocumentRef, Listed] = {}
    at: str | None = None
    while True:
        page = system.listing(at)
        assert not page.problems
        found.update({one.document: one for one in page.documents})
        if page.next is None:
            return found
        at = page.next


def closure(readership: Readership, person: str) -> Closure:
    parents = {m.principal: m.parents for m in readership.memberships}
    known, todo = {f"user:{person}", EVERYONE}, [f"user:{person}", EVERYONE]
    while todo:
        for parent in parents.get(todo.pop(), ()):
            if parent not in known:
                known.add(parent)
                todo.append(parent)
    return Closure(principals=frozenset(known))
