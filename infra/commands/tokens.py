"""``token``: a signed token for one person, for trying things out."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import SecretStr, TypeAdapter, ValidationError

from infra.commands.output import JsonFlag, emit_json
from infra.errors import InfraError
from infra.state import Store
from pipeline import settings as config
from pipeline.settings import Settings
from pipeline.tokens import OPERATOR, sign
from schemas.access import Principal
from schemas.keys import TenantName


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(token)


def token(
    user: Annotated[str, typer.Option("--user", help="Who asks: ann, as in `user:ann` of the access rules.")],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant that is searched.")] = "acme",
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=8760, help="How long it is valid.")] = 24.0,
    operator: Annotated[
        bool, typer.Option("--operator", help="May also search as others and ask for proofs of deletions.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Print a token for the query service, signed with the configured secret."""
    settings = config.load()
    claims: dict[str, Any] = {"roles": [OPERATOR]} if operator else {}
    signed, expires = issue(settings, user, tenant, hours * 3600, **claims)
    if json:
        emit_json({"token": signed, "user": user, "tenant": tenant, "expires": expires})
    else:
        typer.echo(signed)


def issue(settings: Settings, user: str, tenant: str, seconds: float, **claims: Any) -> tuple[str, int]:
    """A token and its expiry in seconds since the epoch. Raises InfraError naming the argument or the setting."""
    subject = user.removeprefix("user:")
    try:
        TypeAdapter(Principal).validate_python(f"user:{subject}")
    except ValidationError:
        raise InfraError(f"--user {user!r} is no user.", "Give the name as in the access rules: --user ann.") from None
    try:
        TypeAdapter(TenantName).validate_python(tenant)
    except ValidationError as error:
        raise InfraError(f"--tenant {tenant!r}: {error.errors()[0]['msg']}.", "Name a tenant, as in acme.") from error
    auth = settings.auth
    return sign(
        signing_secret(settings), subject, tenant, seconds, audience=auth.first_audience, issuer=auth.issuer, **claims
    )


def with_secret(settings: Settings) -> Settings:
    """The settings with the launcher's secret where they name no key, for code that signs tokens itself."""
    if settings.auth.jwt_secret is not None or settings.auth.verifies_foreign:
        return settings
    auth = settings.auth.model_copy(update={"jwt_secret": SecretStr(signing_secret(settings))})
    return settings.model_copy(update={"auth": auth})


def signing_secret(settings: Settings) -> str:
    """The secret of the settings, else the one that the launcher made for this state directory."""
    if settings.auth.jwt_secret is not None:
        return settings.auth.jwt_secret.get_secret_value()
    if settings.auth.verifies_foreign:
        raise InfraError(
            "A key of your identity provider is set: it signs the tokens, not this command.",
            "Ask it for a token, make a key with `headwater keys create`, or set HEADWATER_AUTH__JWT_SECRET instead.",
        )
    return Store(settings.state_dir.absolute()).secrets().jwt
