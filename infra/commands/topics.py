"""``topics``: what lies on the log, and how far its readers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import typer

from infra.commands.output import JsonFlag, console, emit_json, table
from infra.launcher import Services
from pipeline import settings as config
from pipeline.bus.interface import Slot
from pipeline.settings import Settings
from schemas.topics import TOPICS, Topic

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Backlog:
    """How far one group is in one topic. ``records`` are those that it has not applied."""

    group: str
    records: int
    furthest: int  # of the partition that is furthest behind
    partitions: int  # that it has committed in


@dataclass(frozen=True)
class Row:
    """One topic. ``records`` counts from the first to the last offset, gaps of compaction and transactions included."""

    topic: str
    name: str
    partitions: int
    replication: int
    records: int
    kept: str
    description: str
    groups: tuple[Backlog, ...]


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(topics)


def topics(json: JsonFlag = False) -> None:
    """Topics with partitions, records and retention, and what each group of readers has still to do."""
    settings = config.load()
    rows = gather(Services.of(settings).endpoints().apply(settings))
    if json:
        emit_json({"namespace": settings.namespace, "topics": [asdict(row) for row in rows]})
        return
    out = console()
    if not rows:
        out.print(f"No topic of namespace {settings.namespace} yet: `headwater up` makes them.", highlight=False)
        return
    shown = table("topic", "partitions", "records", "kept", "reader", "behind", "worst")
    for row in rows:
        first = [row.topic, str(row.partitions), f"{row.records:,}", row.kept]
        for backlog in row.groups or (None,):
            last = [backlog.group, f"{backlog.records:,}", f"{backlog.furthest:,}"] if backlog else ["", "", ""]
            shown.add_row(*first, *last)
            first = [""] * len(first)
    out.print(shown)
    out.print("records: from the first to the last offset, gaps of compaction included", style="dim", highlight=False)


def gather(settings: Settings) -> list[Row]:
    """Every topic of the namespace that exists, in the order of the contracts. Raises BusUnavailable."""
    from pipeline.bus.groups import committed_offsets, log_ends
    from pipeline.bus.topics import describe_topics

    described = {d.topic: d for d in describe_topics(settings)}
    if not described:
        return []
    begin, end = log_ends(settings, list(described))
    committed = committed_offsets(settings)
    rows = []
    for spec in TOPICS:
        if spec.topic not in described:
            continue
        found = described[spec.topic]
        rows.append(
            Row(
                topic=str(spec.topic),
                name=found.name,
                partitions=found.partitions,
                replication=found.replication,
                records=sum(end[slot] - begin[slot] for slot in end if slot.topic == spec.topic),
                kept=kept(found.configuration),
                description=found.description,
                groups=tuple(
                    b for b in (backlog(group, spec.topic, offsets, end) for group, offsets in committed.items()) if b
                ),
            )
        )
    return rows


def backlog(group: str, topic: Topic, committed: Mapping[Slot, int], end: Mapping[Slot, int]) -> Backlog | None:
    """What a group has not done of a topic; None where it does not read it."""
    slots = [slot for slot in committed if slot.topic == topic]
    if not slots:
        return None
    # A reader of uncommitted records may be beyond the end that others see.
    behind = [max(0, end.get(slot, 0) - committed[slot]) for slot in slots]
    return Backlog(group, sum(behind), max(behind), len(slots))


def kept(configuration: Mapping[str, str]) -> str:
    """How long records stay."""
    if "compact" in configuration.get("cleanup.policy", ""):
        return "last of each key"
    milliseconds = configuration.get("retention.ms", "")
    return f"{int(milliseconds) / DAY_MS:g} days" if milliseconds.isdigit() else "for ever"
