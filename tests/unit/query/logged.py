"""The small world with a query log: what the service sends lands in the world's log in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from pipeline.errors import BusUnavailable
from pipeline.ports import Appended, Outgoing
from pipeline.settings_query import QueryLogSettings
from query_service.app import Dependencies
from schemas.querylog import LOG_RECORD, QueryRecord
from schemas.topics import Topic
from tests.unit.query.world import FakeLog, Running, World

OPERATOR = {"roles": ["operator"]}
EVALUATOR = {"roles": ["evaluator"]}


class FakePublisher:
    """``pipeline.ports.Publisher`` on a FakeLog."""

    def __init__(self, log: FakeLog, clock: Callable[[], int]) -> None:
        self.log = log
        self.clock = clock
        self.calls = 0
        self.closed = False
        self.blocked: threading.Event | None = None

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        self.calls += 1
        if self.blocked is not None:
            self.blocked.wait(10)
        if self.log.down:
            raise BusUnavailable("the log is down")
        made = [self.log.append(Topic(r.topic), r.key, r.value, at=self.clock()) for r in records]
        return [Appended(m.topic, m.partition, m.offset, m.timestamp) for m in made]

    def close(self) -> None:
        self.closed = True


class LoggedWorld(World):
    """A world whose query service logs its queries."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        super().__init__(tmp_path)
        self.settings = self.settings.model_copy(update={"querylog": QueryLogSettings(**settings)})
        self.publisher = FakePublisher(self.log, self.clock.now)

    def people(self, tenant: str) -> Iterator[str]:
        for record in self.store.walk_principals(tenant):
            yield record.principal

    def dependencies(self) -> Dependencies:
        return replace(super().dependencies(), open_publisher=lambda: self.publisher, people=self.people)

    def logged(self) -> list[Any]:
        """Every record of the topic, per partition in order."""
        found = []
        for (topic, _), line in sorted(self.log.records.items()):
            if topic == Topic.QUERIES.value:
                found += [LOG_RECORD.validate_json(record.value or b"") for record in line]
        return found

    def queries(self) -> list[QueryRecord]:
        return sorted((r for r in self.logged() if isinstance(r, QueryRecord)), key=lambda r: r.at)


async def seen(run: Running, count: int) -> None:
    """Until the view has taken ``count`` records of the topic."""

    def taken() -> bool:
        view = run.parts.querylog.view
        if view is None:
            return False
        with view._reader() as db:
            return bool(sum(o for (o,) in db.execute("SELECT log_offset FROM positions")) >= count)

    await run.until(taken)


async def listed(run: Running, sub: str = "eva", claims: dict[str, Any] | None = None, **params: Any) -> Any:
    reply = await run.client.get(
        "/v1/queries", params=params, headers=run.headers(sub, **(EVALUATOR if claims is None else claims))
    )
    assert reply.status_code == 200, reply.text
    return reply.json()


async def say(run: Running, body: dict[str, Any], sub: str = "ann", **headers: str) -> httpx.Response:
    return await run.client.post("/v1/feedback", json=body, headers={**run.headers(sub), **headers})
