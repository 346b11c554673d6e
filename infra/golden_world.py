"""The sample wiki in a world of its own: namespace, processes and ports that nothing else uses, gone afterwards.

Retrieval is measured on this corpus alone, ingested by the code as it is now: an index that grew under an older chunker
would be measured instead of the present one.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from infra import ports
from infra.asking import QueryApi
from infra.corpus import pages
from infra.endpoints import Endpoints
from infra.errors import InfraError
from infra.files import write_atomic
from infra.progress import Reporter
from infra.rehearsal import SETTLED, ReceiptsTail
from infra.supervisor import TABLE, Supervisor
from pipeline import settings as config
from pipeline.errors import Retry
from pipeline.settings import Settings

SOURCE = "wiki"
PROCESSES = ("control", "access", "index", "query", "owner")
INGEST_S = 900.0
SETTLE_S = 60.0
_LOST = ("dead_letter", "body_gone", "parked", "refused")


@contextmanager
def golden_world(
    endpoints: Endpoints, folder: Path, wiki: Path, *, tenant: str, report: Reporter
) -> Iterator[Settings]:
    """Settings of a world that holds the wiki and nothing else; it is removed at the end.

    Args:
        endpoints: running Kafka and Weaviate.
        folder: for its state, emptied first; only one world at a time may use it.
        wiki: the folder that is ingested.
        tenant: the wiki's tenant.
        report: receives the steps.

    Raises:
        InfraError: something did not start, or a page could not be ingested.
    """
    _remove_leftover(endpoints, folder)
    namespace = f"quality-{secrets.token_hex(4)}"
    with environment(_variables(namespace, folder, wiki, tenant)):
        settings = endpoints.apply(config.load())
        supervisor = _supervisor(settings)
        write_atomic(folder / "world.json", json.dumps({"namespace": namespace}).encode())
        try:
            supervisor.up(endpoints, report)
        except BaseException:
            _remove(settings, supervisor)
            raise
    try:
        _ingest(settings, wiki, tenant, report)
        yield settings
    finally:
        _remove(settings, supervisor)


def _variables(namespace: str, folder: Path, wiki: Path, tenant: str) -> dict[str, str]:
    chosen = ports.choose({"query": 1, "gateway": 1}, {})
    source = {"name": SOURCE, "tenant": tenant, "type": "folder", "path": str(wiki.absolute())}
    return {
        "HEADWATER_NAMESPACE": namespace,
        "HEADWATER_STATE_DIR": str(folder.absolute()),
        "HEADWATER_QUERY__HOST": ports.LOOPBACK,
        "HEADWATER_QUERY__PORT": str(chosen["query"]),
        "HEADWATER_QUERY__RECEIPTS_PATH": str(folder.absolute() / "receipts.sqlite"),
        "HEADWATER_GATEWAY__PORT": str(chosen["gateway"]),
        "HEADWATER_BODIES__STORE": f"file://{folder.absolute() / 'bodies'}",
        "HEADWATER_KAFKA__PARTITIONS": "3",
        "HEADWATER_CANARY__ENABLED": "false",
        "HEADWATER_SOURCES": json.dumps([source]),
    }


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables for the block; as they were afterwards. Children that start inside inherit them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _supervisor(settings: Settings) -> Supervisor:
    return Supervisor(settings, tuple(spec for spec in TABLE if spec.name in PROCESSES))


# -- ingesting ---------------------------------------------------------------------------------------------------------


def _ingest(settings: Settings, wiki: Path, tenant: str, report: Reporter) -> None:
    wanted = sum(1 for _ in pages(wiki))
    tail = ReceiptsTail(settings, tenant, settings.sources[0].name)
    try:
        end = time.monotonic() + INGEST_S
        while (done := sum(outcome in SETTLED for outcome in dict(tail.documents).values())) < wanted:
            report.step("ingest", f"{done} of {wanted} pages", done / wanted)
            if time.monotonic() > end:
                raise InfraError(
                    f"{wanted - done} of {wanted} pages were not ingested within {INGEST_S:.0f} s.",
                    f"Read the logs under {settings.state_dir / 'logs'}.",
                )
            time.sleep(0.2)
        lost = sorted(name for name, outcome in tail.documents.items() if outcome in _LOST)
    finally:
        tail.close()
    if lost:
        raise InfraError(
            f"{len(lost)} pages could not be processed: {', '.join(lost[:5])}.",
            f"Read {settings.state_dir / 'logs' / 'index.log'}.",
        )
    _settle(settings)
    report.finish("ingest", f"{wanted} pages")


def _settle(settings: Settings) -> None:
    """Until the query service may answer: access and membership are at the log's end there too (invariant 11)."""
    end = time.monotonic() + SETTLE_S
    with QueryApi(settings) as api:
        while not api.ready():
            if time.monotonic() > end:
                raise InfraError(
                    f"The query service was not ready within {SETTLE_S:.0f} s.",
                    f"Read {settings.state_dir / 'logs' / 'query.log'}.",
                )
            time.sleep(0.2)


# -- removing ----------------------------------------------------------------------------------------------------------


def _remove_leftover(endpoints: Endpoints, folder: Path) -> None:
    """What a world that was killed left in this folder: its processes, topics and collections."""
    try:
        namespace = str(json.loads((folder / "world.json").read_text(encoding="utf-8"))["namespace"])
    except (OSError, ValueError, KeyError, TypeError):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with environment({"HEADWATER_NAMESPACE": namespace, "HEADWATER_STATE_DIR": str(folder.absolute())}):
        settings = endpoints.apply(config.load())
    _remove(settings, _supervisor(settings))


def _remove(settings: Settings, supervisor: Supervisor) -> None:
    supervisor.down()
    # The services may be what failed; a world's topics and collections are then removed before the next one.
    with suppress(Retry, InfraError):
        erase(settings)
        shutil.rmtree(settings.state_dir, ignore_errors=True)


def erase(settings: Settings) -> None:
    """Topics and collections of the namespace. Raises BusUnavailable or InfraError."""
    from pipeline.bus.topics import delete_topics
    from pipeline.index.schema import Collections

    delete_topics(settings)
    prefix = Collections(settings.namespace).access.removesuffix("Access")
    key = settings.weaviate.api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    try:
        with httpx.Client(base_url=f"{settings.weaviate.url}/v1", headers=headers, timeout=60) as client:
            listed = client.get("/schema").raise_for_status().json()
            for name in [str(c["class"]) for c in listed.get("classes") or []]:
                if name.startswith(prefix):
                    client.delete(f"/schema/{name}").raise_for_status()
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise InfraError(f"The collections {prefix}… were not removed: {error}.", "Run it again.") from error
