"""``size``: memory and disk of an index, of one that is planned or of the one that runs."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import httpx
import psutil
import typer

from infra.commands.output import JsonFlag, console, emit_json, table
from infra.errors import InfraError
from infra.launcher import WEAVIATE, Services
from pipeline import settings as config
from pipeline.errors import Retry
from pipeline.operate import sizing
from pipeline.operate.sizing import Estimate
from pipeline.settings import Settings
from schemas.generation import Generation

TRIES, PAUSE_S = 5, 0.5
RETRIEVAL_MS, ANSWER_S = 40.0, 3.04


@dataclass(frozen=True)
class Held:
    """What a generation holds: chunks by tier."""

    generation: Generation
    hot: int
    cold: int


@dataclass(frozen=True)
class Measured:
    """The server's process. ``resident`` counts file pages too, ``private`` does not."""

    pid: int
    resident: int
    private: int
    expected: int

    @property
    def ratio(self) -> float:
        """Measured by expected."""
        return self.private / self.expected


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(size)


def size(
    chunks: Annotated[int | None, typer.Option("--chunks", min=1, help="Chunks; without it the running index.")] = None,
    dimension: Annotated[int, typer.Option("--dimension", min=1, help="Values of a vector.")] = 384,
    bytes_per_value: Annotated[int, typer.Option("--bytes-per-value", min=1, max=8)] = 4,
    hot: Annotated[int | None, typer.Option("--hot", min=0, help="Chunks of them in the hot tier.")] = None,
    generations: Annotated[int, typer.Option("--generations", min=1, help="Kept side by side.")] = 1,
    json: JsonFlag = False,
) -> None:
    """Memory and disk that an index needs: vectors, graph, quantised copy, postings, records, generations kept."""
    if chunks is not None:
        made = [
            sizing.estimate(
                chunks, dimension, bytes_per_value=bytes_per_value, hot=hot, generations=generations
            )
        ]  # fmt: skip
        _show([("planned", made[0])], None, json)
        return
    settings = config.load()
    services = Services.of(settings)
    settings = services.endpoints().apply(settings)
    held, shards = look(settings)
    found = [(h.generation.name, _of(h)) for h in held]
    _show(found, measure(services.pid(WEAVIATE), [estimate for _, estimate in found], shards), json)


def _of(held: Held) -> Estimate:
    encoder, index = held.generation.encoder, held.generation.index
    return sizing.estimate(held.hot + held.cold, encoder.dimension, index=index, hot=held.hot)


def look(settings: Settings) -> tuple[list[Held], int]:
    """Each generation's chunks, and the number of loaded shards of the whole server. Raises InfraError."""
    generations = _generations(settings)
    counts, shards = count(_nodes(settings), settings.namespace)
    return [
        Held(g, counts.get(("Hot", name), 0), counts.get(("Cold", name), 0)) for name, g in generations.items()
    ], shards


def _generations(settings: Settings) -> dict[str, Generation]:
    from pipeline.index.store import WeaviateStore

    store = WeaviateStore(settings)
    try:
        tried = 0
        while True:
            try:
                return store.read_generations()
            except Retry as error:
                tried += 1
                if tried == TRIES:
                    raise InfraError(f"Weaviate does not answer: {error}.", "Run `headwater status`.") from error
                time.sleep(PAUSE_S)
    finally:
        store.close()


def _nodes(settings: Settings) -> dict[str, Any]:
    key = settings.weaviate.api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    try:
        answer = httpx.get(f"{settings.weaviate.url}/v1/nodes?output=verbose", headers=headers, timeout=30)
        answer.raise_for_status()
        found = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise InfraError(f"Weaviate does not say what it holds: {error}.", "Run `headwater status`.") from error
    if not isinstance(found, dict):
        raise InfraError("Weaviate answers with something else than its nodes.", "Check weaviate.url.")
    return found


def count(nodes: dict[str, Any], namespace: str) -> tuple[dict[tuple[str, str], int], int]:
    """Objects by (tier, generation) of the namespace, and loaded shards of every collection there is."""
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", namespace)
    name = re.compile(rf"{prefix[:1].upper()}{prefix[1:]}_(Hot|Cold)_(.+)")
    counts: dict[tuple[str, str], int] = {}
    shards = 0
    for node in nodes.get("nodes") or []:
        for shard in node.get("shards") or []:
            shards += bool(shard.get("loaded", True))
            found = name.fullmatch(str(shard.get("class", "")))
            if found:
                tier = (found.group(1), found.group(2))
                counts[tier] = counts.get(tier, 0) + int(shard.get("objectCount") or 0)
    return counts, shards


def measure(pid: int | None, held: list[Estimate], shards: int) -> Measured | None:
    """The server's process against the estimate; None where it is not ours to look at."""
    if pid is None:
        return None
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return None
    private = memory.rss - int(getattr(memory, "shared", 0))
    live, chunks = sum(e.memory for e in held), sum(e.chunks for e in held)
    return Measured(pid, memory.rss, private, sizing.process_bytes(live, shards, chunks))


def _show(found: list[tuple[str, Estimate]], measured: Measured | None, as_json: bool) -> None:
    share = sizing.retrieval_share(RETRIEVAL_MS, ANSWER_S)
    if as_json:
        emit_json(
            {
                "estimates": [_plain(name, estimate) for name, estimate in found],
                "measured": asdict(measured) | {"ratio": round(measured.ratio, 3)} if measured else None,
                "retrieval": {"ms": RETRIEVAL_MS, "answer_s": ANSWER_S, "share": round(share, 4)},
            }
        )
        return
    out = console()
    if not found:
        out.print("There is no generation yet: `headwater up` makes the first one.", highlight=False)
    for name, estimate in found:
        out.print(
            f"[bold]{name}[/]: {estimate.chunks:,} chunks x {estimate.dimension} x {estimate.bytes_per_value} bytes"
            f" = {estimate.vectors:,} bytes of raw vectors",
            highlight=False,
        )
        shown = table("part", "memory", "disk", "")
        for line in estimate.lines:
            shown.add_row(line.name, human(line.memory), human(line.disk), line.note)
        kept = f"{estimate.generations} generations" if estimate.generations > 1 else "one generation"
        shown.add_row("[bold]all[/]", human(estimate.memory), human(estimate.disk), kept)
        out.print(shown)
    if measured is not None:
        out.print(
            f"Weaviate (pid {measured.pid}): {human(measured.private)} private, {human(measured.resident)} resident;"
            f" expected {human(measured.expected)} with the server itself and its heap: ratio {measured.ratio:.2f}",
            highlight=False,
        )
    out.print(
        f"Retrieval of {RETRIEVAL_MS:.0f} ms is {100 * share:.1f} % of an answer that takes {ANSWER_S} s.",
        highlight=False,
    )


def _plain(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "name": name,
        **asdict(estimate),
        "memory_bytes": estimate.memory,
        "disk_bytes": estimate.disk,
    }


def human(value: int) -> str:
    """Bytes in one unit."""
    amount, unit = float(value), "B"
    for following in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, following
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
