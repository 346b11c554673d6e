"""``why``: why a person sees a document or does not."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer
from rich.console import Console

from infra.asking import QueryApi
from infra.commands.deletion import moment
from infra.commands.opened import located, requester, uid_of
from infra.commands.output import JsonFlag, console, emit_json
from infra.errors import InfraError
from pipeline import settings as config
from pipeline.tokens import OPERATOR
from schemas.api_why import RuleReport, WhyResponse
from schemas.keys import DocumentRef
from schemas.topics import Topic

MARKS = {True: "[green]yes[/]", False: "[bold red]no [/]", None: "[dim]-  [/]"}
SHOWN = 20
_UID = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(why)


class WhyApi(QueryApi):
    """Asks as an operator."""

    def __enter__(self) -> WhyApi:
        return self

    def why(self, tenant: str, user: str, uid: str, generation: str | None) -> WhyResponse:
        """``GET /v1/why``."""
        params = {"user": user, "document": uid} | ({"generation": generation} if generation is not None else {})
        return self._ask(WhyResponse, "GET", "/v1/why", requester(), tenant, roles=(OPERATOR,), params=params)


def why(
    user: Annotated[str, typer.Argument(help="The person: ann, as in `user:ann` of the access rules.")],
    document: Annotated[str, typer.Argument(help="The document's uid, or its id, as in wiki:index.md or index.md.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Its tenant.")] = "acme",
    source: Annotated[str | None, typer.Option("--source", help="Its source; else the one that has the id.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="Its kind, where an id and --source are given.")] = "page",
    generation: Annotated[str | None, typer.Option("--generation", help="Instead of the active one.")] = None,
    json: JsonFlag = False,
) -> None:
    """Why a person sees a document or does not, clause by clause. It is logged that this was asked."""
    uid = document
    if source is not None:
        uid = uid_of(tenant, source, kind, document)
    elif not _UID.fullmatch(document):
        uid = named_so(tenant, document, _keys())
    with WhyApi(config.load()) as api:
        found = api.why(tenant, user, uid, generation)
    if json:
        emit_json(found)
    else:
        explain(console(), found)


def named_so(tenant: str, name: str, keys: Iterable[str | None]) -> str:
    """The uid of the tenant's one document that is called ``name``: an id or ``source:id``.

    ``keys`` are those of the owners' memories (topic ``cursors``). Raises InfraError where none or several fit.
    """
    found: dict[str, tuple[str, str]] = {}
    for key in keys:
        try:
            parts = json_module.loads(key or "")
        except ValueError:
            continue
        if not isinstance(parts, list) or len(parts) != 5 or parts[0] != tenant or parts[2] != "document":
            continue
        _, source, _, kind, of = parts
        if name in (of, f"{source}:{of}"):
            found[DocumentRef(tenant=tenant, source=source, kind=kind, id=of).uid] = (source, kind)
    if len(found) == 1:
        return next(iter(found))
    if found:
        there = ", ".join(f"--source {source} --kind {kind}" for source, kind in sorted(set(found.values()))[:5])
        raise InfraError(f"Several documents of {tenant} are called {name!r}.", f"Add one of: {there}.")
    raise InfraError(
        f"{name!r} is no uid, and no document of {tenant} has this id.",
        "Give the document's id at its source, or its uid: `headwater search QUERY --user NAME --json` "
        "and `headwater queries show ID` tell it (document_uid).",
    )


def _keys() -> Iterator[str | None]:
    from pipeline.bus.tail import read_compacted

    gone: dict[str | None, bool] = {}
    for record in read_compacted(located(), Topic.CURSORS):
        gone[record.key] = record.value is None
    yield from (key for key, forgotten in gone.items() if not forgotten)


def explain(out: Console, found: WhyResponse) -> None:
    """Print it for people."""

    def line(text: str, style: str | None = None) -> None:
        out.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    where = f"{found.source}:{found.document_id}" if found.document_id is not None else found.document_uid
    line(f"{found.person.user} {found.says}", style="bold green" if found.allowed else "bold red")
    line(f"{where}, generation {found.generation}{'' if found.active else ' (not active)'}, {moment(found.judged_at)}")
    for check in found.checks:
        out.print(f"  {MARKS[check.passed]} {_escape(check.says)}", highlight=False, soft_wrap=True)
    if found.rule is not None:
        _rule(line, "rule", found.rule)
    if found.manifest_rule is not None and found.manifest_rule != found.rule:
        _rule(line, "rule that the text was written under", found.manifest_rule)
    person = found.person
    state = "live" if person.live else "no live record"
    doubts = ("" if person.complete else ", not all known") + (", tenant suspended" if person.tenant_suspended else "")
    line(f"{person.user}: {state}, {person.principals_total} principals{doubts}")
    for reached in person.principals[:SHOWN]:
        until = f" until {moment(reached.until)}" if reached.until is not None else ""
        line(f"  {' > '.join(reached.path)}{until}")
    for label in ("missing", "removed", "unreadable", "ended"):
        names = getattr(person, label)
        if names:
            line(f"  {label}: {', '.join(names[:SHOWN])}")
    admitted = found.rule is not None and found.rule.admits
    if admitted and found.manifest is not None and not found.manifest.prefilter:
        line("searches that are filtered by principals do not meet it yet: its chunks carry older principals")
    if found.manifest is not None and not found.manifest.in_effect:
        line("it is not in effect now: searches with a date leave it out")
    for waiting in found.pending:
        line(f"pending: {waiting.lane} has not settled version {waiting.written} (at {waiting.settled or 'none'})")
    for alarm in found.source_alarms:
        line(f"alarm of {found.source}: {alarm}", style=None if found.allowed else "red")
    written = found.record.written_at if found.record is not None else None
    if written is not None:
        line(f"access record written {moment(written)}")
    line(f"logged as {found.query_id}", style="dim")


def _rule(line: Callable[[str], None], label: str, rule: RuleReport) -> None:
    line(f"{label}: {'admits' if rule.admits else 'does not admit'}" + (f" ({rule.reason})" if rule.reason else ""))
    for number, clause in enumerate(rule.clauses, 1):
        by = ", ".join(clause.satisfied_by) if clause.satisfied else "nothing that the person has"
        others = [g.principal + ("" if g.live else " (ended)") for g in clause.grants if not (g.held and g.live)]
        more = "" if clause.satisfied else f"; it asks for one of: {', '.join(others[:SHOWN])}"
        line(f"  clause {number}: satisfied by {by}{more}")
    if rule.denied_by:
        line(f"  denied by: {', '.join(rule.denied_by)}")
    elif rule.denied_as_unknown:
        line("  denies some, and not all principals of the person are known")


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
