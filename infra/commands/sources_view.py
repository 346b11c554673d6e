"""How sources, what was found at them, and reports of their owners look on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from infra.commands.letters import age
from infra.commands.output import table
from schemas.reconciliation import IndexReport, OpenRequest, OwnerStatus, ReconciliationReport, SourceReconciliation

if TYPE_CHECKING:
    from pipeline.operate.owned import SourceStatus
    from pipeline.operate.testing import Tested
    from pipeline.ports import ProgressBar

COUNTS = ("new", "stale", "wrongly_readable", "missing", "held", "released", "purged", "repaired")
DIFFERENCES = ("extra", "missing", "unprocessable", "wrongly_readable", "wrongly_hidden")
STYLES = {"dead": "bold red", "unreachable": "red", "starved": "yellow", "paused": "yellow", "working": "green"}
# Documents came by the change gateway or from the corpus that `headwater run` follows; no owner stands for them.
STATES = {"gateway": "pushed, or read by headwater run"}

LABELS = {
    "poll_s": "asked what changed every … seconds",
    "access_s": "who may read is compared every … seconds",
    "sweep_s": "each document is read again within … seconds",
    "walk_s": "listed in full every … seconds",
    "deletions": "deletions are told by",
    "push": "pushes",
    "access": "lost rights are noticed by",
    "undated": "seen only by reading again",
    "kinds": "documents",
    "child_kinds": "documents that live by others",
    "held": "in quarantine",
    "kept": "kept visible though missing",
    "lag_s": "lag in seconds",
    "listed": "last complete listing",
    "requests": "requests under way",
    "backlog": "events that the index has not applied",
    "asked": "questions to the system",
    "failures": "of which failed",
    "limited": "times it asked for patience",
    "limited_s": "left alone for … seconds",
}


@contextmanager
def bars(out: Console) -> Iterator[ProgressBar]:
    """One bar a step, where somebody looks; else nothing."""
    if not out.is_terminal:
        yield lambda step, done, total: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"))
    with Progress(*columns, TimeElapsedColumn(), console=out, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def tell(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = shown.add_task(step, total=None, detail="")
            detail = f"{done:,}" + (f" of {total:,}" if total else "")
            shown.update(tasks[step], completed=done, total=total, detail=detail)

        yield tell


# -- states ------------------------------------------------------------------------------------------------------------


def plain(status: SourceStatus, now: int) -> dict[str, Any]:
    """A source for programs: what the log says, with its state and lag at ``now`` (µs)."""
    kept = {name: value for name, value in vars(status).items() if name not in ("live", "told")}
    return kept | {"state": status.state(now), "lag_s": status.lag_s(now), "owner": status.told}


def overview(out: Console, found: Sequence[SourceStatus], now: int) -> None:
    """One line a source."""
    heads = (
        "tenant", "source", "type", "state", "documents", "held", "backlog", "lag", "listed", "asked to wait", "alarms",
        "requests",
    )  # fmt: skip
    rows: list[tuple[str | Text, ...]] = []
    for s in found:
        told, state = s.told, s.state(now)
        kept = f" ({s.kept:,} kept visible)" if s.kept else ""
        rows.append((
            s.tenant, s.source, s.type or "-", Text(STATES.get(state, state), STYLES.get(state, "")),
            f"{s.documents:,}", (f"{s.held:,}" if s.held else "") + kept,
            f"{told.backlog:,}" if told and told.backlog else "",
            _lag(s.lag_s(now)), listed(told), _patience(told), str(len(told.alarms) or "") if told else "",
            ", ".join(map(_under_way, s.requests)),
        ))  # fmt: skip
    used = [n for n in range(len(heads)) if any(row[n] for row in rows)]
    shown = table(*(heads[n] for n in used))
    for row in rows:
        shown.add_row(*(row[n] for n in used))
    out.print(shown)
    for s in found:
        if s.state(now) == "dead":
            seen = "never" if s.seen_at is None else f"{age(s.seen_at)} ago"
            out.print(
                f"{s.source}: no sign of its owner since 20 s (last: {seen}); `headwater up` starts the owner anew",
                style="dim",
            )
    if any(s.told is not None and s.told.alarms for s in found):
        out.print("`headwater sources describe NAME` shows alarms and problems in full", style="dim", highlight=False)


def listed(told: OwnerStatus | None) -> str:
    """When the last complete listing ended, and what it met."""
    if told is None:
        return "-"
    if told.listed_at is None:
        return "none yet"
    return f"{age(told.listed_at)} ago, {told.listed:,}"


def _under_way(request: OpenRequest) -> str:
    return f"{request.type} {request.state}" + (f" {request.done:,}/{request.expected:,}" if request.expected else "")


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return (
        f"{seconds:.1f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _patience(told: OwnerStatus | None) -> str:
    if told is None or not told.limited:
        return ""
    return f"{told.limited:,} times" + (f", for {told.limited_s:.0f} s" if told.limited_s else "")


def described(out: Console, facts: Mapping[str, Any]) -> None:
    """Everything about one source: a heading and its values for each part, a list for what is a list."""
    for heading, value in facts.items():
        if isinstance(value, Mapping):
            shown = table(heading, "")
            labels = {} if heading == "settings" else LABELS
            for name, one in value.items():
                shown.add_row(f"  {labels.get(name, name)}", _cell(one))
            out.print(shown)
        elif isinstance(value, list | tuple):
            if value:
                out.print(f"[bold]{heading}[/]")
            for one in value:
                out.print(f"  {one}", style="red" if heading == "alarms" else "", highlight=False, markup=False)
        else:
            out.print(f"[bold]{heading}[/]  ", end="")
            out.print(str(value), highlight=False, markup=False)


def _cell(value: Any) -> Text:
    if value is None or value == [] or value == ():
        return Text("-")
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return Text(", ".join(value))
    return Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def tried(out: Console, found: Sequence[Tested]) -> None:
    """What was found out about each source."""
    for source in found:
        out.print(f"[bold]{source.source}[/]  {source.tenant}  {source.type}  {source.where}", highlight=False)
        for finding in source.findings:
            mark = Text("  good  ", "green") if finding.good else Text("  bad   ", "red")
            out.print(mark.append(finding.what, ""), highlight=False)
            if finding.remedy is not None:
                out.print(f"        {finding.remedy}", style="dim", highlight=False, markup=False)


# -- reports -----------------------------------------------------------------------------------------------------------


def show(out: Console, report: SourceReconciliation) -> None:
    """Two small tables and what they leave open."""
    out.print(f"[bold]{report.source}[/]  {report.tenant}", highlight=False)
    if report.problem is not None:
        out.print(f"  {report.problem}", style="red", highlight=False, markup=False)
    if report.listing is not None:
        show_listing(out, report.listing)
    if report.index is not None:
        _index(out, report.index)


def show_listing(out: Console, found: ReconciliationReport) -> None:
    """What an owner met at its source, and what it did."""
    state = "complete" if found.complete else "not complete"
    did = "" if found.repair else ", nothing was changed"
    out.print(
        f"  source: {found.listed:,} documents, {state}{did}, {found.seconds:.1f} s, listing {found.request_id}",
        highlight=False,
        markup=False,
    )
    _counts(out, found, COUNTS, found.examples)
    for why in found.why:
        out.print(f"    {why}", highlight=False, markup=False)


def _index(out: Console, found: IndexReport) -> None:
    late = f", {found.behind:,} records not applied yet" if found.behind else ""
    out.print(
        f"  index {found.generation or '(none)'}: {found.manifests:,} manifests and {found.access:,} access records "
        f"for {found.known:,} documents{late}, {found.repaired:,} repaired",
        highlight=False,
        markup=False,
    )
    _counts(out, found, DIFFERENCES, found.examples)
    for why in found.why:
        out.print(f"    {why}", highlight=False, markup=False)


def _counts(out: Console, found: Any, names: tuple[str, ...], examples: dict[str, tuple[str, ...]]) -> None:
    rows = [(name, getattr(found, name)) for name in names if getattr(found, name)]
    if not rows:
        out.print("    no difference", style="dim", highlight=False)
        return
    shown = table("  ", "documents", "for instance")
    for name, count in rows:
        named = examples.get(name, ())
        shown.add_row(f"    {name.replace('_', ' ')}", f"{count:,}", ", ".join(named[:3]) + (" …" if count > 3 else ""))
    out.print(shown)
