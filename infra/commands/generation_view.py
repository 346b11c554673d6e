"""How ``headwater generation`` shows what it knows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from infra.commands.output import table
from infra.commands.search import age
from infra.commands.size import human
from pipeline.bus.instances import Instance
from pipeline.generations import Declaration
from pipeline.operate.estimate import BackfillEstimate
from schemas.generation import CHUNKING_REVISION, EncoderSpec, Generation
from schemas.receipts import Receipt

COLOURS = {"building": "yellow", "ready": "cyan", "active": "green", "standby": "blue", "retired": "dim"}


def plain_generation(generation: Generation) -> dict[str, Any]:
    """The record for programs; of the reference vectors their shape alone."""
    found = generation.model_dump(mode="json")
    if generation.reference is not None:
        found["reference"] = {
            "texts_sha256": generation.reference.texts_sha256,
            "dimension": generation.reference.dimension,
        }
    return found


def plain_estimate(expected: BackfillEstimate) -> dict[str, Any]:
    """The estimate for programs."""
    return asdict(expected)


def list_view(out: Console, generations: Sequence[Generation], behind: Mapping[str, int | None]) -> None:
    """One line a generation."""
    if not generations:
        out.print("There is no generation yet: `headwater up` makes the first one.", highlight=False)
        return
    shown = table("name", "state", "encoder", "dimension", "backend", "behind", "since", "report")
    for g in generations:
        lag = behind.get(g.name)
        shown.add_row(
            g.name, f"[{COLOURS[g.state]}]{g.state}[/]", encoder_name(g.encoder), str(g.encoder.dimension),
            g.backend.name, "" if lag is None else f"{lag:,}", _ago(g.state_since or g.created_at), _report(g),
        )  # fmt: skip
    out.print(shown)
    out.print("behind: records on the log that it has not applied", style="dim", highlight=False)


def show_view(out: Console, g: Generation, behind: int | None, instances: Sequence[Instance]) -> None:
    """All of one generation."""
    encoder, chunking = g.encoder, g.chunking
    lines = [
        ("state", f"{g.state}, for {_ago(g.state_since or g.created_at)}"
                  + (f", asked for by {g.requested_by}" if g.requested_by else "")),
        ("encoder", f"{encoder.model} at {encoder.revision}"),
        ("weights", encoder.weights_sha256 or f"endpoint {encoder.endpoint}"),
        ("vectors", f"{encoder.dimension} values, {'unit' if encoder.normalize else 'any'} length, {encoder.pooling}"),
        ("instructions", f"query {encoder.query_instruction!r}, document {encoder.document_instruction!r}"),
        ("backend", f"{g.backend.name}, agreement {g.backend.agreement:.4f}, {g.backend.chunks_per_second:.1f}/s"),
        ("chunking", f"{chunking.strategy}, {chunking.child_tokens} tokens ({chunking.child_min_tokens}-"
                     f"{chunking.child_max_tokens}), sections {chunking.parent_tokens}, overlap {chunking.overlap}"),
        ("revision", str(chunking.revision) if chunking.revision == CHUNKING_REVISION else
                     f"{chunking.revision}; this version makes {CHUNKING_REVISION}: documents that change are cut the "
                     "new way, a new generation renews all"),
        ("report", _report(g) or "never verified"),
    ]  # fmt: skip
    if behind is not None:
        lines.append(("behind", f"{behind:,} records"))
    if g.override:
        lines.append(("override", g.override))
    if g.drop_after is not None and g.dropped_at is None:
        lines.append(("drop after", _moment(g.drop_after)))
    if g.freed is not None:
        lines.append(("freed", f"{g.freed.documents} documents, {g.freed.chunks} chunks, {human(g.freed.bytes)}"))
    for instance in instances:
        beat = instance.beat
        warm = "encoder loaded" if g.name in beat.warm else "encoder not loaded"
        lines.append(("query service", f"{beat.instance}: {warm}, {beat.in_flight.get(g.name, 0)} requests"))
    shown = table("", "")
    shown.show_header = False
    for name, value in lines:
        shown.add_row(f"[bold]{name}[/]", value.replace("[", "\\["))
    out.print(shown)
    for failure in g.report.failures if g.report is not None else ():
        out.print(f"  {failure}", highlight=False, markup=False)


def estimate_view(
    out: Console, name: str, wanted: Declaration, expected: BackfillEstimate, changes: Sequence[str], state_dir: Path
) -> None:
    """What a generation will take, before it is made."""
    out.print(f"[bold]{name}[/]: {encoder_name(wanted.encoder)}, {wanted.encoder.dimension} values", highlight=False)
    for change in changes:
        out.print(f"  {change}", highlight=False, markup=False)
    minutes = f"{expected.minutes} with one worker" if expected.minutes is not None else "not known"
    shown = table("", "")
    shown.show_header = False
    for label, value in (
        ("documents", f"{expected.documents:,} ({expected.basis})"),
        ("chunks", f"{expected.chunks:,}"),
        ("tokens", f"{expected.tokens:,}"),
        ("encoder", f"{expected.backend}, {expected.chunks_per_second} chunks/s here"),
        ("minutes", minutes),
        ("money", f"{expected.money} {expected.currency}"),
        ("memory", human(expected.index_memory_bytes)),
        ("disk", human(expected.index_disk_bytes)),
        ("open files", f"{expected.open_files:,} more in the store"),
    ):
        shown.add_row(label, value)
    out.print(shown)
    for warning in _warnings(expected, state_dir):
        out.print(f"[yellow]{warning}[/]", highlight=False)


def _warnings(expected: BackfillEstimate, state_dir: Path) -> list[str]:
    """What of this machine will not do, as far as the store runs here."""
    found = []
    free = psutil.virtual_memory().available
    if expected.index_memory_bytes > free:
        found.append(f"memory: {human(free)} are free on this machine")
    place = next(p for p in (state_dir.absolute(), *state_dir.absolute().parents) if p.exists())
    left = shutil.disk_usage(place).free
    if expected.index_disk_bytes > left:
        found.append(f"disk: {human(left)} are free at {place}")
    return found


def answer_view(out: Console, receipt: Receipt, following: str = "") -> None:
    """What control did, and what it looked at."""
    what = receipt.event_type.removeprefix("control.")
    out.print(f"[green]done[/]: {what} {receipt.generation}", highlight=False)
    details = receipt.details or {}
    checks = details.get("checks")
    if isinstance(checks, dict):
        for name, check in checks.items():
            out.print(f"  {name}: {check['found']}", style="dim", highlight=False, markup=False)
    freed = details.get("freed")
    if isinstance(freed, dict):
        out.print(
            f"  freed: {freed['documents']} documents, {freed['chunks']} chunks, {human(freed['bytes'])}",
            highlight=False,
        )
    if receipt.reason:
        out.print(f"[yellow]warning:[/] {receipt.reason.replace('[', chr(92) + '[')}", highlight=False)
    if following:
        out.print(following, style="dim", highlight=False)


def encoder_name(spec: EncoderSpec) -> str:
    """Short, where the catalogue knows it."""
    from pipeline.embed.catalogue import short_name

    return short_name(spec) or (f"{spec.endpoint}: {spec.model}" if spec.endpoint else spec.model)


def _report(g: Generation) -> str:
    if g.report is None:
        return ""
    verdict = "passed" if g.report.passed else "failed"
    return f"{verdict} {_ago(g.report.finished_at)} ago against {g.report.against or 'nothing'}"


def _ago(moment: int) -> str:
    return age(max(0.0, time.time() - moment / 1_000_000))


def _moment(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment / 1_000_000))
