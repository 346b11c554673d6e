"""A topic with rows as Debezium tells them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from infra.endpoints import Endpoints
from infra.sources_check.play import TENANT, Play, Sees, Step, all_see
from infra.sources_check.stage import Stage
from pipeline import settings as config
from pipeline.bus.foreign import ForeignWriter

SOURCE, TABLE = "articles", "articles"
PEOPLE = ("ann", "bob")
_all = partial(all_see, PEOPLE)


class TopicSystem:
    """See the module."""

    name = "topic"

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._topic = f"shop.public.{TABLE}.{secrets.token_hex(4)}"
        self._writer: ForeignWriter | None = None
        self._lsn = 1000

    def available(self) -> str | None:
        """Kafka runs whenever the product does."""
        return None

    def start(self, folder: Path) -> Play:
        """Make the topic, write a snapshot."""
        self._writer = ForeignWriter(self._endpoints.apply(config.load()), self._topic, 2)
        self._row("r", 1, "The fennec article is for staff.", ["user:ann", "user:bob"])
        self._row("r", 2, "The genet article is for the board.", ["user:ann"])
        return Play(
            self.name,
            {SOURCE: "push"},
            self._steps,
            lambda stage: iter(()),
            begins=(
                *_all("fennec article"),
                Sees("ann", "genet article"),
                Sees("bob", "genet article", False),
            ),
            settings=[
                {
                    "name": SOURCE,
                    "tenant": TENANT,
                    "type": "topic",
                    "bootstrap": self._endpoints.bootstrap,
                    "topics": [self._topic],
                    "format": "debezium",
                    "readers": "readers",
                },
                # the topic tells nobody's memberships; who exists is told by a source of people
                {"name": "people", "tenant": TENANT, "type": "folder", "path": str(self._people(folder))},
            ],
        )

    def ready(self, stage: Stage) -> None:
        """Nothing waits for the product."""

    def stop(self) -> None:
        """Disconnect."""
        if self._writer is not None:
            self._writer.close()

    def _steps(self, stage: Stage) -> Iterator[Step]:
        both = ["user:ann", "user:bob"]
        yield Step(
            "a row is inserted",
            lambda: self._row("c", 3, "The serval article is new.", both),
            _all("serval article"),
        )
        yield Step(
            "it is updated",
            lambda: self._row("u", 3, "The caracal article is newer.", both),
            (*_all("caracal article"), *_all("serval article", False)),
        )
        yield Step(
            "an older row of a snapshot comes late",
            lambda: self._row("r", 3, "The serval article is new.", both, lsn=1),
            (*_all("caracal article"), *_all("serval article", False)),
        )
        yield Step(
            "its readers change, and its unchanged text is not sent",
            lambda: self._row("u", 3, "__debezium_unavailable_value", ["user:ann"]),
            (Sees("ann", "caracal article"), Sees("bob", "caracal article", False)),
        )
        yield Step("a row is deleted", lambda: self._deleted(1), _all("fennec article", False))

    # ------------------------------------------------------------ doing it

    def _people(self, folder: Path) -> Path:
        tree = folder / "people"
        tree.mkdir(parents=True, exist_ok=True)
        (tree / "groups.yaml").write_text("users: [ann, bob]\n", encoding="utf-8")
        return tree

    def _row(self, op: str, id_: int, text: str, readers: list[str], *, lsn: int | None = None) -> None:
        self._lsn += 1
        row = {"id": id_, "title": f"Article {id_}", "text": text, "readers": json.dumps(readers)}
        self._send(id_, {"op": op, "before": None, "after": row, "source": self._source(lsn), "ts_ms": 1})

    def _deleted(self, id_: int) -> None:
        self._lsn += 1
        before = {"id": id_, "title": None, "text": None, "readers": None}
        self._send(id_, {"op": "d", "before": before, "after": None, "source": self._source(None), "ts_ms": 1})
        self._send(id_, None)

    def _source(self, lsn: int | None) -> dict[str, Any]:
        at = lsn if lsn is not None else self._lsn
        return {
            "connector": "postgresql",
            "schema": "public",
            "table": TABLE,
            "lsn": at,
            "ts_ms": 1,
            "snapshot": "false",
        }

    def _send(self, id_: int, value: dict[str, Any] | None) -> None:
        assert self._writer is not None
        self._writer.send(json.dumps({"id": id_}).encode(), None if value is None else json.dumps(value).encode())
