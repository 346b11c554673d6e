"""``keys``: API keys of the query service, for programs that no identity provider gives a token."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from infra.commands import people
from infra.commands.output import JsonFlag, emit_json
from infra.errors import InfraError
from infra.files import exclusive, write_atomic
from pipeline import settings as config
from pipeline.tokens import ROLES
from query_service.keys import ApiKey, KeyFile, new_secret, place, read, whole

DAY_US = 86_400_000_000
MAX_DAYS = 36_500.0


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    group = typer.Typer(help="API keys of the query service.", no_args_is_help=True)
    group.command()(create)
    group.command("list")(list_keys)
    group.command()(revoke)
    app.add_typer(group, name="keys")


def create(
    user: Annotated[str, typer.Option("--user", help="As whom it searches: ann, as in `user:ann` of the rules.")],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant that it searches.")],
    days: Annotated[
        float, typer.Option("--days", min=0, max=MAX_DAYS, help="How long it is valid; 0 is without end.")
    ] = 90.0,
    role: Annotated[list[str] | None, typer.Option("--role", help="operator or evaluator; may be repeated.")] = None,
    product: Annotated[list[str] | None, typer.Option("--product", help="Only these products; repeatable.")] = None,
    as_of_from: Annotated[int | None, typer.Option(help="Earliest applicable date, µs since the epoch.")] = None,
    as_of_until: Annotated[int | None, typer.Option(help="Latest applicable date, µs since the epoch.")] = None,
    note: Annotated[str, typer.Option("--note", help="What it is for.")] = "",
    json: JsonFlag = False,
) -> None:
    """Make a key and show it once; the service knows only a hash of it. It is valid from the next request on."""
    unknown = sorted(set(role or ()) - set(ROLES))
    if unknown:
        raise InfraError(f"--role {unknown[0]!r} is no role.", f"Name {' or '.join(ROLES)}.")
    if not all(name.strip() for name in product or ()):
        raise InfraError("--product is empty.", "Name a product, or leave the option out for all.")
    key_id, secret, salt, digest = new_secret()
    now = int(time.time() * 1e6)
    try:
        made = ApiKey(
            id=key_id, salt=salt, sha256=digest, tenant=tenant, subject=user.removeprefix("user:"),
            roles=tuple(sorted(set(role or ()))),
            products=tuple(product) if product else None, as_of_from=as_of_from, as_of_until=as_of_until, note=note,
            created_at=now, expires_at=now + int(days * DAY_US) if days else None,
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = str(first["loc"][0]) if first["loc"] else "user"
        option = {"subject": "user"}.get(field, field).replace("_", "-")
        raise InfraError(f"--{option}: {first['msg'].removeprefix('Value error, ')}.", "Correct it.") from None
    path = _changed(lambda file: KeyFile(keys=(*file.keys, made)))
    if json:
        emit_json({"key": whole(key_id, secret), **_shown(made), "file": str(path)})
    else:
        typer.echo(whole(key_id, secret))
        typer.echo(f"Keep it now: it is not shown again. `headwater keys revoke {key_id}` ends it.", err=True)
    people.warn(tenant, made.subject)


def list_keys(json: JsonFlag = False) -> None:
    """List the keys: whose they are, what they may and until when; never the keys themselves."""
    keys = _read(place(config.load())).keys
    if json:
        emit_json([_shown(key) for key in keys])
        return
    for key in keys:
        until = "without end" if key.expires_at is None else f"until {_day(key.expires_at)}"
        state = f"revoked {_day(key.revoked_at)}" if key.revoked_at is not None else until
        roles = f"  {','.join(key.roles)}" if key.roles else ""
        typer.echo(f"{key.id}  {key.tenant}  {key.subject}  {state}{roles}{'  ' + key.note if key.note else ''}")
    if not keys:
        typer.echo("There is no key.")


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Of `headwater keys list`.")], json: JsonFlag = False
) -> None:
    """End a key; the next request with it is refused. Doing it again changes nothing."""
    now = int(time.time() * 1e6)

    def ended(file: KeyFile) -> KeyFile:
        if key_id not in {key.id for key in file.keys}:
            raise InfraError(f"There is no key {key_id!r}.", "See `headwater keys list`.")
        return KeyFile(
            keys=tuple(
                key.model_copy(update={"revoked_at": now}) if key.id == key_id and key.revoked_at is None else key
                for key in file.keys
            )
        )

    _changed(ended)
    if json:
        emit_json({"id": key_id, "revoked": True})
    else:
        typer.echo(f"Key {key_id} is revoked.")


def _changed(change: Callable[[KeyFile], KeyFile]) -> Path:
    """Read, change and write the file under a lock, readable by its owner alone."""
    path = place(config.load())
    with exclusive(path.with_name(f"{path.name}.lock"), "API keys"):
        after = change(_read(path))
        write_atomic(path, after.model_dump_json(indent=2).encode(), 0o600)
    return path


def _read(path: Path) -> KeyFile:
    try:
        return read(path)
    except FileNotFoundError:
        return KeyFile()
    except (OSError, ValueError) as error:
        raise InfraError(f"{path} cannot be read: {error}.", "Restore it, or move it away and make new keys.") from None


def _shown(key: ApiKey) -> dict[str, object]:
    return key.model_dump(mode="json", exclude={"salt", "sha256"})


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d")
