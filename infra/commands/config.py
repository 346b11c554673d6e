"""``config check``: whether the settings can work, and what they are."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from infra.commands.output import JsonFlag, console, emit_json, table
from pipeline import settings as config
from pipeline.settings import Settings
from pipeline.settings_sources import AnySource, FolderSettings, GitSettings, MediaWikiSettings, OutboxSettings

SECRET_BYTES = 32  # of HS256; a shorter key can be guessed offline from one token


HOOK_LENGTH = 16


@dataclass(frozen=True)
class Finding:
    """One thing that will not work."""

    field: str
    problem: str
    remedy: str


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    group = typer.Typer(help="Look at the settings.", no_args_is_help=True)
    group.command("check")(check)
    app.add_typer(group, name="config")


def check(json: JsonFlag = False) -> None:
    """Read the settings, say what will not work; else print the values in force, secrets masked, and their origin."""
    settings = config.load()
    findings = list(problems(settings))
    values = settings.model_dump(mode="json")
    origins = _origins(values)
    if json:
        file = str(config.config_path())
        emit_json({"ok": not findings, "file": file, "findings": findings, "settings": values, "origins": origins})
    else:
        _print(settings, findings, values, origins)
    if findings:
        raise typer.Exit(1)


def problems(settings: Settings) -> Iterator[Finding]:
    """What the types cannot say."""
    for index, source in enumerate(settings.sources):
        yield from _source(settings, f"sources.{index}", source)
    yield from _shared(settings)
    yield from _people(settings)
    for field, secret in (("auth.jwt_secret", settings.auth.jwt_secret), ("gateway.secret", settings.gateway.secret)):
        if secret is not None and len(secret.get_secret_value().encode()) < SECRET_BYTES:
            yield Finding(field, f"shorter than {SECRET_BYTES} bytes", "Use a longer one: openssl rand -base64 48.")
    named = ("jwt_secret", "jwt_public_key", "jwks_url", "jwks_file")
    ways = [name for name in named if getattr(settings.auth, name) is not None]
    if len(ways) > 1:
        yield Finding("auth", f"{' and '.join(ways)} are set together", "Keep the one that your tokens use.")
    if settings.gateway.port == settings.query.port and settings.gateway.host == settings.query.host:
        yield Finding("gateway.port", f"{settings.gateway.port} is the query service's port too", "Choose another.")
    if settings.kafka.heartbeat_s * 3 > min(settings.kafka.access_session_s, settings.kafka.index_session_s):
        yield Finding(
            "kafka.heartbeat_s",
            "more than a third of a session: members would be thrown out between heartbeats",
            "Lower it, or raise kafka.access_session_s and kafka.index_session_s.",
        )
    if settings.encoder.weights is not None and not settings.encoder.weights.is_dir():
        yield Finding("encoder.weights", f"{settings.encoder.weights} is no folder", "Name the folder of the model.")


def _source(settings: Settings, field: str, source: AnySource) -> Iterator[Finding]:
    """One source by itself."""
    if isinstance(source, FolderSettings) and not source.path.is_dir():
        yield Finding(f"{field}.path", f"{source.path} is no folder", "Name an existing folder.")
    if isinstance(source, GitSettings) and source.url.startswith(("/", ".", "~")) and not Path(source.url).is_dir():
        yield Finding(f"{field}.url", f"{source.url} is no folder", "Name an existing repository.")
    hook = getattr(source, "webhook_secret", None)
    if hook is not None:
        if len(hook.get_secret_value()) < HOOK_LENGTH:
            remedy = "Use a longer one: openssl rand -base64 24."
            yield Finding(f"{field}.webhook_secret", f"shorter than {HOOK_LENGTH} characters", remedy)
        for other, secret in (
            ("auth.jwt_secret", settings.auth.jwt_secret),
            ("gateway.secret", settings.gateway.secret),
        ):
            if secret == hook:
                remedy = "Give the source one of its own: whoever sets up its webhook learns it."
                yield Finding(f"{field}.webhook_secret", f"the same as {other}", remedy)
    identity = getattr(source, "identity", None)
    directory = {person.id for person in settings.people if person.tenant == source.tenant}
    for account, person in identity.people.items() if identity is not None and directory else ():
        if person not in directory:
            remedy = f"Correct the name, or list {person} under people."
            yield Finding(f"{field}.identity.people.{account}", f"{person} is nobody of {source.tenant}", remedy)


def _shared(settings: Settings) -> Iterator[Finding]:
    """What only one source may use."""
    used: dict[tuple[object, ...], str] = {}
    for index, source in enumerate(settings.sources):
        key: tuple[object, ...] | None = None
        if isinstance(source, OutboxSettings) and source.mode == "logical":
            key, field, problem = (source.dsn, source.slot), "slot", "what one reads of a slot is lost to the other"
        elif isinstance(source, MediaWikiSettings) and source.udp is not None:
            key, field, problem = (source.udp,), "udp", "only one process can receive there"
        if key is None:
            continue
        if key in used:
            remedy = "Give each source its own."
            yield Finding(f"sources.{index}.{field}", f"the same as {used[key]}.{field}: {problem}", remedy)
        used.setdefault(key, f"sources.{index}")


def _people(settings: Settings) -> Iterator[Finding]:
    """The directory: each person once, each address of one person."""
    ids: set[tuple[str, str]] = set()
    addresses: dict[tuple[str, str], str] = {}
    for index, person in enumerate(settings.people):
        if (person.tenant, person.id) in ids:
            remedy = "List each person once, with all addresses."
            yield Finding(f"people.{index}.id", f"{person.id} of {person.tenant} is listed twice", remedy)
        ids.add((person.tenant, person.id))
        for address in person.emails:
            owner = addresses.setdefault((person.tenant, address.strip().lower()), person.id)
            if owner != person.id:
                problem = f"{address} is {owner}'s too: accounts with it are joined to nobody"
                yield Finding(f"people.{index}.emails", problem, "Leave it with the one whose it is.")


def _origins(values: dict[str, Any]) -> dict[str, str]:
    """Where each setting comes from: environment, file or default."""
    file = config.config_path()
    written = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    variables = {name.upper() for name in os.environ}
    return {name: _origin(name.split("."), written, variables) for name, _ in _flat("", values)}


def _origin(parts: list[str], written: Any, variables: set[str]) -> str:
    if any(f"HEADWATER_{'__'.join(parts[:end])}".upper() in variables for end in range(1, len(parts) + 1)):
        return "environment"
    for part in parts:
        if isinstance(written, list):
            written = dict(enumerate(written)).get(int(part))
        elif isinstance(written, dict):
            written = written.get(part)
    return "default" if written is None else "file"


def _print(settings: Settings, findings: list[Finding], values: dict[str, Any], origins: dict[str, str]) -> None:
    out = console()
    file = config.config_path()
    found = str(file) if file.is_file() else f"{file} (not there: defaults and environment only)"
    out.print(f"Settings file: {found}", highlight=False, soft_wrap=True)
    for finding in findings:
        out.print(f"[red]{finding.field}[/]: {finding.problem}. {finding.remedy}", highlight=False, soft_wrap=True)
    if not findings:
        shown = table("setting", "value", "from")
        for name, value in _flat("", values):
            shown.add_row(name, value, origins[name])
        out.print(shown)
        out.print(f"[green]All well[/] (sources: {len(settings.sources)}).", highlight=False)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(value, list | tuple) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(f"{prefix}.{index}", inner)
    else:
        yield prefix, str(value)
