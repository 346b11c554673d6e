"""An application's PostgreSQL with an outbox: one source reads a replication slot, one asks the table."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from infra.errors import StartError
from infra.servers.postgres import PostgresServer, available, programs
from infra.sources_check.play import TENANT, Play, Sees, Step, all_see
from infra.sources_check.stage import Stage
from pipeline.sources.outbox.ddl import ddl

LOGICAL, ASKED = "app", "app-asked"
TABLE, SLOT = "public.headwater_outbox", "headwater"
PEOPLE = ("ann", "bob")
_all = partial(all_see, PEOPLE)


class OutboxSystem:
    """See the module."""

    name = "outbox"

    def __init__(self) -> None:
        self._server: PostgresServer | None = None

    def available(self) -> str | None:
        """Whether the package is there."""
        return None if available() else "PostgreSQL is not installed: install the package postgresql"

    def start(self, folder: Path) -> Play:
        """Make the table, write a few rows."""
        self._server = PostgresServer()
        self._server.start()
        for statement in ddl(TABLE, SLOT, SLOT).split(";\n"):
            self._sql(statement)
        self._rows(_member("ann", "audience:app/staff", "audience:app/board"), _member("bob", "audience:app/staff"))
        self._rows(_page("1", "The ibex contract ends in May.", "audience:app/staff"))
        self._rows(_page("2", "The chamois minutes are secret.", "audience:app/board"))
        common = {"tenant": TENANT, "type": "outbox", "dsn": self._server.dsn(), "table": TABLE}
        return Play(
            self.name,
            {LOGICAL: "push", ASKED: "poll"},
            self._steps,
            lambda stage: iter(()),
            begins=(
                *_all("ibex contract"),
                Sees("ann", "chamois minutes"),
                Sees("bob", "chamois minutes", False),
            ),
            settings=[
                {"name": LOGICAL, "mode": "logical", "slot": SLOT, "publication": SLOT, **common},
                {"name": ASKED, "mode": "poll", "poll_s": 1.0, **common},
            ],
        )

    def ready(self, stage: Stage) -> None:
        """Nothing waits for the product."""

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()

    def _steps(self, stage: Stage) -> Iterator[Step]:
        yield Step(
            "a row is written",
            lambda: self._rows(_page("3", "The markhor order is packed.", "audience:app/staff")),
            _all("markhor order"),
        )
        yield Step(
            "a transaction is rolled back, and another one is not",
            self._rolled_back,
            (*_all("tahr order"), *_all("never written", False)),
        )
        yield Step(
            "a document is narrowed",
            lambda: self._rows({"type": "access", "id": "3", "access": {"allow": ["audience:app/board"]}}),
            (Sees("ann", "markhor order"), Sees("bob", "markhor order", False)),
        )
        yield Step(
            "somebody leaves a group",
            lambda: self._rows(_member("ann", "audience:app/staff")),
            (Sees("ann", "markhor order", False), Sees("ann", "chamois minutes", False), Sees("ann", "ibex contract")),
        )
        yield Step(
            "somebody joins it",
            lambda: self._rows(_member("ann", "audience:app/staff", "audience:app/board")),
            (Sees("ann", "markhor order"), Sees("bob", "markhor order", False)),
        )
        yield Step(
            "a document is deleted",
            lambda: self._rows({"type": "delete", "id": "1"}),
            _all("ibex contract", False),
        )

    # ------------------------------------------------------------ doing it

    def _rows(self, *changes: dict[str, Any]) -> None:
        """In one transaction."""
        values = ", ".join(f"('{json.dumps(_named(change))}')" for change in changes)
        self._sql(f"INSERT INTO {TABLE} (payload) VALUES {values}")

    def _rolled_back(self) -> None:
        lost = _page("4", "A page that is never written.", "everyone")
        kept = _page("5", "The tahr order.", "audience:app/staff")
        self._sql(
            f"BEGIN; INSERT INTO {TABLE} (payload) VALUES ('{json.dumps(_named(lost))}'); ROLLBACK; "
            f"INSERT INTO {TABLE} (payload) VALUES ('{json.dumps(_named(kept))}')"
        )

    def _sql(self, statement: str) -> None:
        found = programs()
        assert self._server is not None and found is not None
        argv = [str(found / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-d", self._server.dsn(), "-c", statement]
        done = subprocess.run(argv, capture_output=True, check=False, timeout=30)
        if done.returncode != 0:
            raise StartError(f"psql failed: {done.stderr.decode()[:500]}", "See the statement.")


def _named(change: dict[str, Any]) -> dict[str, Any]:
    return {"tenant": TENANT} | change


def _page(id_: str, text: str, *readers: str) -> dict[str, Any]:
    return {"type": "upsert", "id": id_, "title": f"Page {id_}", "text": text, "access": {"allow": list(readers)}}


def _member(person: str, *parents: str) -> dict[str, Any]:
    return {"type": "membership", "principal": f"user:{person}", "parents": list(parents)}
