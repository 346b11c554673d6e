"""What commands that work on the log and the store directly begin with."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from infra.errors import InfraError
from infra.launcher import Services
from pipeline import settings as config
from pipeline.settings import Settings
from schemas.keys import DocumentRef

if TYPE_CHECKING:
    from pipeline.ports import IndexStore


def located() -> Settings:
    """Settings that point at the services, wherever the launcher put them."""
    settings = config.load()
    return Services.of(settings).endpoints().apply(settings)


def uid_of(tenant: str, source: str, kind: str, document: str) -> str:
    """The uid of a document that a command names by its source and id. Raises InfraError."""
    try:
        return DocumentRef(tenant=tenant, source=source, kind=kind, id=document).uid
    except ValueError as error:
        raise InfraError(f"No such document can exist: {error}.", "Correct --tenant, --source or the id.") from error


def requester() -> str:
    """Who asks, as records and receipts keep it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return "cli"


@contextmanager
def opened() -> Iterator[tuple[Settings, IndexStore]]:
    """Settings that point at the services, and the store. Raises InfraError where nothing was ever started."""
    from pipeline.bus.topics import describe_topics
    from pipeline.index.store import WeaviateStore

    settings = located()
    if not describe_topics(settings):
        raise InfraError(f"There is nothing in namespace {settings.namespace} yet.", "`headwater up` starts it.")
    with closing(WeaviateStore(settings)) as store:
        yield settings, store
