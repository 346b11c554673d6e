"""``sources``: what is asked of their owners: list, read, pause, say again, lift holds, remove."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import typer

from infra.commands.opened import located, requester
from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from infra.commands.sources_look import Name, Names, OneTenant, Tenant, choose, describe, list_, one, outbox_ddl, test
from infra.commands.sources_view import bars, show, show_listing
from infra.errors import InfraError
from pipeline.clock import micros_of
from pipeline.settings import Settings
from schemas.keys import DocumentRef
from schemas.reconciliation import ReconciliationReport

Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for an owner's answer.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Document = Annotated[str | None, typer.Option("--document", help="Only this document, by its id.")]
Kind = Annotated[str, typer.Option("--kind", help="Kind of the document.")]
Hold = Literal["quarantine", "legal", "administrator"]


def register(app: typer.Typer) -> None:
    """Add this file's group."""
    group = typer.Typer(help="Sources: their owners, and what to ask of them.", no_args_is_help=True)
    group.command("list")(list_)
    for command in (
        describe, test, sync, pause, resume, reset, reconcile, backfill, undo, holds, release, remove, outbox_ddl,
    ):  # fmt: skip
        group.command()(command)
    app.add_typer(group, name="sources")


# -- commands ----------------------------------------------------------------------------------------------------------


def sync(
    name: Name,
    tenant: Tenant = "acme",
    document: Document = None,
    kind: Kind = "page",
    timeout: Timeout = 3600.0,
    json: JsonFlag = False,
) -> None:
    """Have a source listed in full now, or one document read now, and what differs appended, hidden or deleted."""
    from pipeline.operate.requests import asking

    settings, by = located(), requester()
    _awake(settings, tenant, name)
    with bars(progress_console()) as progress, asking(settings) as asked:
        if document is not None:
            ref = DocumentRef(tenant=tenant, source=name, kind=kind, id=document)
            found = asked.document(ref, requested_by=by)
        else:
            found = asked.listing(tenant, name, requested_by=by, timeout_s=timeout, progress=progress)
    if document is not None:
        _told(found, json, "It was read and said again." if found.repaired else "It is as it was.")
        return
    _listed(found, json)


def pause(name: Name, tenant: Tenant = "acme", json: JsonFlag = False) -> None:
    """Read nothing from a source until it is resumed; what is indexed stays searchable, and grows old."""
    from pipeline.operate.requests import asking

    settings = located()
    one(settings, tenant, name)
    with asking(settings) as asked:
        found = asked.pause(tenant, name, requested_by=requester())
    _told(
        found,
        json,
        f"{name} is paused: lost rights and deletions are not seen either. `headwater sources resume {name}`",
    )


def resume(name: Name, tenant: Tenant = "acme", json: JsonFlag = False) -> None:
    """Read a paused source again, beginning with all that happened meanwhile."""
    from pipeline.operate.requests import asking

    settings = located()
    one(settings, tenant, name)
    with asking(settings) as asked:
        found = asked.resume(tenant, name, requested_by=requester())
    _told(found, json, f"{name} is read again; `headwater sources list` shows how far it is.")


def reset(
    name: Name,
    tenant: Tenant = "acme",
    yes: Yes = False,
    timeout: Timeout = 86_400.0,
    json: JsonFlag = False,
) -> None:
    """Forget the place at a source and read every document again. Nothing is deleted for it."""
    from pipeline.operate.requests import asking

    settings = located()
    documents = _awake(settings, tenant, name)
    if not yes:
        typer.confirm(
            f"Every document of {name} ({tenant}; {documents:,} are known) is read again, which asks a lot of its "
            "system. Nothing is deleted for it, and what did not change is neither appended nor embedded. Go on?",
            abort=True,
        )
    with bars(progress_console()) as progress, asking(settings) as asked:
        found = asked.reset(tenant, name, requested_by=requester(), timeout_s=timeout, progress=progress)
    _listed(found, json)


def reconcile(
    names: Names = None,
    tenant: OneTenant = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what differs.")] = False,
    confirm_deletions: Annotated[
        bool, typer.Option("--confirm-deletions", help="What is missing is deleted now, however much it is.")
    ] = False,
    timeout: Timeout = 3600.0,
    json: JsonFlag = False,
) -> None:
    """Have sources listed in full, compare them with what is indexed, and repair what differs."""
    from pipeline.operate.owned import sources
    from pipeline.operate.reconcile import reconcile as run

    if dry_run and confirm_deletions:
        raise InfraError("--dry-run deletes nothing.", "Leave out --confirm-deletions, or --dry-run.")
    settings = located()
    known = [(s.tenant, s.source) for s in sources(settings) if s.configured or s.documents]
    chosen = choose(known, names, tenant)
    with bars(progress_console()) as progress:
        reports = run(
            settings, chosen, repair=not dry_run, confirm_deletions=confirm_deletions, requested_by=requester(),
            timeout_s=timeout, progress=progress,
        )  # fmt: skip
    if json:
        emit_json(reports)
    else:
        for report in reports:
            show(console(), report)
    if any(r.problem is not None or (r.listing is not None and not r.listing.complete) for r in reports):
        raise typer.Exit(1)


def backfill(
    name: Name,
    tenant: Tenant = "acme",
    since: Annotated[
        str | None, typer.Option("--from", help="Updated at or after: 2026-01-31, or with a time.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Updated before.")] = None,
    document: Document = None,
    kind: Kind = "page",
    timeout: Timeout = 86_400.0,
    json: JsonFlag = False,
) -> None:
    """Append again what a source holds, changed or not: all of it, a window of time, or one document."""
    from pipeline.operate.requests import asking

    settings, by = located(), requester()
    if document is not None and (since is not None or until is not None):
        raise InfraError("--document is one document, whenever it was updated.", "Leave out --from and --until.")
    with bars(progress_console()) as progress, asking(settings) as asked:
        if document is not None:
            found = asked.document(DocumentRef(tenant=tenant, source=name, kind=kind, id=document), requested_by=by)
        else:
            found = asked.backfill(
                tenant, name, updated_from=moment("--from", since), updated_until=moment("--until", until),
                requested_by=by, timeout_s=timeout, progress=progress,
            )  # fmt: skip
    _told(found, json, f"{found.repaired:,} documents appended again in {found.seconds:.1f} s.")


def undo(
    name: Name,
    listing: Annotated[str, typer.Argument(help="Id of the listing, as `headwater sources holds` shows it.")],
    tenant: Tenant = "acme",
    json: JsonFlag = False,
) -> None:
    """Lift every hold that one listing laid on: its documents are visible at once, and stay so while missing."""
    from pipeline.operate.requests import asking

    with asking(located()) as asked:
        found = asked.undo(tenant, name, listing, requested_by=requester())
    _told(found, json, f"{found.released:,} documents are visible again.")


def holds(name: Name, tenant: Tenant = "acme", json: JsonFlag = False) -> None:
    """Documents in quarantine: why, by which listing, and when they are deleted if they stay missing."""
    from pipeline.operate.owned import held, memory

    settings = located()
    found = sorted(
        held(memory(settings, tenant, name), settings.reconcile.quarantine_days), key=lambda h: (h.since, h.document_id)
    )
    if json:
        emit_json(found)
        return
    if not found:
        console().print(f"No document of {name} is in quarantine.", highlight=False)
        return
    shown = table("document", "why", "since", "deleted after", "listing")
    for h in found:
        shown.add_row(h.document_id, h.reason, _date(h.since), _date(h.purge_at), h.by)
    console().print(shown)
    console().print(
        f"`headwater sources undo {name} LISTING` shows all of a listing again", style="dim", highlight=False
    )


def release(
    name: Name,
    document: Annotated[str, typer.Argument(help="Id of the document.")],
    hold: Annotated[str, typer.Option("--hold", help="quarantine, legal or administrator.")] = "quarantine",
    kind: Kind = "page",
    tenant: Tenant = "acme",
    json: JsonFlag = False,
) -> None:
    """Lift one hold of one document."""
    from pipeline.operate.requests import asking

    ref = DocumentRef(tenant=tenant, source=name, kind=kind, id=document)
    with asking(located()) as asked:
        found = asked.lift(ref, _hold(hold), requested_by=requester())
    _told(found, json, f"{'The hold is lifted.' if found.released else 'No such hold stood.'}")


def remove(
    name: Name,
    tenant: Tenant = "acme",
    yes: Yes = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Although something writes for the source, as the change gateway does.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Delete all documents of a source that was taken out of the settings."""
    from infra.removing import Removal

    removal = Removal(located(), tenant, name)
    count = removal.check(take_over=take_over)
    if not yes:
        typer.confirm(
            f"Delete all {count:,} documents of {name} ({tenant})? Only a source brings them back", abort=True
        )
    with bars(progress_console()) as progress:
        found = removal.carry_out(progress)
    _told(found, json, f"{found.purged:,} documents are deleted; their traces leave the index within seconds.")


# -- parts -------------------------------------------------------------------------------------------------------------


def _awake(settings: Settings, tenant: str, name: str) -> int:
    """How many documents the source has. Raises InfraError where it is unknown or paused, or BusUnavailable."""
    status = one(settings, tenant, name)
    if status.paused:
        raise InfraError(
            f"{name} is paused: its owner would begin this only afterwards.",
            f"`headwater sources resume {name}` first.",
        )
    return status.documents


def _listed(report: ReconciliationReport, json: bool) -> None:
    if json:
        emit_json(report)
    else:
        show_listing(console(), report)
    if not report.complete:
        raise typer.Exit(1)


def _hold(name: str) -> Hold:
    for known in ("quarantine", "legal", "administrator"):
        if name == known:
            return known
    raise InfraError(f"--hold {name} is no hold.", "Name quarantine, legal or administrator.")


def moment(option: str, text: str | None) -> int | None:
    """Microseconds of a date or time; one without a zone is UTC. Raises InfraError naming the option."""
    if text is None:
        return None
    try:
        return micros_of(text)
    except ValueError as error:
        raise InfraError(f"{option} {text} is no date.", "Write 2026-01-31 or 2026-01-31T12:00+01:00.") from error


def _date(at: int | None) -> str:
    return "" if not at else dt.datetime.fromtimestamp(at / 1e6, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _told(report: ReconciliationReport, json: bool, text: str) -> None:
    if json:
        emit_json(report)
        return
    console().print(text, highlight=False)
    for why in report.why:
        console().print(f"  {why}", highlight=False, markup=False)
