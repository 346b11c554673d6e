"""Whether the log knows a person, for commands that would otherwise pass over a misspelt name in silence."""

from __future__ import annotations

import contextlib
import socket

import typer

from infra.commands.opened import located
from pipeline.errors import HeadwaterError

PROBE_S = 1.0


def unknown(tenant: str, user: str) -> bool:
    """Whether the tenant has no live record of ``user`` (ann or user:ann) on the log.

    False also where the log cannot be asked.
    """
    from infra.commands.lag import known_users
    from infra.errors import InfraError

    try:
        settings = located()
    except HeadwaterError:
        return False  # nothing was ever started here
    if not any(map(_answers, settings.kafka.bootstrap.split(","))):
        return False  # a consumer would wait for a broker for a quarter of a minute
    try:
        return f"user:{user.removeprefix('user:')}" not in known_users(settings, tenant)
    except InfraError:
        return True  # it has nobody at all
    except HeadwaterError:
        return False


def warning(tenant: str, user: str) -> str:
    """What to say of such a person."""
    name = f"user:{user.removeprefix('user:')}"
    return (
        f"{tenant} has no live record of {name}: nothing is found as this person until a source names them. "
        "Look at the spelling and --tenant; a folder names people under users in groups.yaml, programs by a "
        "membership change."
    )


def warn(tenant: str, user: str) -> None:
    """Say it on the error output, where the log does not know the person."""
    if unknown(tenant, user):
        typer.echo(f"Warning: {warning(tenant, user)}", err=True)


def _answers(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    with contextlib.suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), PROBE_S):
        return True
    return False
