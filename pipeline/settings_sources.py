"""Settings of sources: one model for each type, chosen by ``type``. Part of ``pipeline.settings``; read nowhere else.

``walk_s`` is how often a source is listed in full, ``poll_s`` how often it is asked what changed, ``access_s`` how
often who may read is compared, ``sweep_s`` how long one round takes in which every document is read again, for changes
that move no date at their system.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, SecretStr, Tag, model_validator

from schemas.access import Principal
from schemas.base import name_fault
from schemas.keys import SourceName, TenantName


def _expand(path: Path) -> Path:
    return path.expanduser()


UserPath = Annotated[Path, AfterValidator(_expand)]


class Part(BaseModel):
    """A group of settings: unknown names are errors."""

    model_config = ConfigDict(extra="forbid")


def _address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_address)]


def _named(value: str) -> str:
    fault = name_fault(value) if value else "is not empty"
    if fault is not None:
        raise ValueError(f"a person's name {fault}")
    return value


PersonName = Annotated[str, AfterValidator(_named)]


class Person(Part):
    """Somebody in the company, as tokens name them."""

    id: PersonName = Field(description="'sub' of their tokens.")
    tenant: TenantName = "acme"
    emails: tuple[str, ...] = ()


class IdentitySettings(Part):
    """How accounts of a source are joined to people; an account that is not may read nothing."""

    join: Literal["listed", "email", "login"] = Field(
        default="listed", description="'login' where the source's logins are the company's own names."
    )
    email_verified: bool = Field(
        default=False, description="Addresses at this source are proven, as from a directory: nobody can type theirs."
    )
    people: dict[str, PersonName] = Field(default_factory=dict, description="Account id or login = person; goes first.")


class Source(Part):
    """What every source has."""

    name: SourceName
    tenant: TenantName = "acme"
    erasable: bool = False
    walk_s: float = Field(default=3600.0, gt=0, description="Seconds between full listings.")

    def where(self) -> str:
        """Where it is, for people."""
        for field in ("url", "bucket", "table", "topics", "path"):
            if value := getattr(self, field, None):
                return ", ".join(value) if isinstance(value, tuple) else str(value)
        return ""


class FolderSettings(Source):
    """A folder tree on this machine."""

    type: Literal["folder"] = "folder"
    path: UserPath
    url_base: str | None = None
    walk_s: float = Field(default=30.0, gt=0, description="Periodic walk, the safety net below the watch.")


class _Remote(Source):
    """What sources over an API have in common."""

    poll_s: float = Field(default=5.0, gt=0, description="Seconds between questions what changed.")
    access_s: float = Field(default=5.0, gt=0, description="Seconds between comparisons of who may read.")
    sweep_s: float = Field(default=3600.0, gt=0, description="Seconds in which every document is read again once.")
    requests_per_s: float = Field(default=20.0, gt=0, le=1000)
    timeout_s: float = Field(default=10.0, gt=0)
    webhook_secret: SecretStr | None = Field(
        default=None, description="Lets the system notify us at the gateway's /v1/hooks; at least 16 characters."
    )
    identity: IdentitySettings = IdentitySettings()

    @model_validator(mode="after")
    def _strong(self) -> _Remote:
        if self.webhook_secret is not None and len(self.webhook_secret.get_secret_value()) < 16:
            raise ValueError("webhook_secret has fewer than 16 characters")
        return self


class MediaWikiSettings(_Remote):
    """A MediaWiki, 1.35 or newer. Its account must not be a sysop: those are shown hidden revisions."""

    type: Literal["mediawiki"]
    url: WebAddress = Field(description="Address of the folder that holds api.php.")
    username: str | None = Field(default=None, description="Bot password name, Account@bot; none: as nobody.")
    password: SecretStr | None = None
    page_url: WebAddress | None = Field(default=None, description="What page titles are put behind; else index.php.")
    namespaces: tuple[int, ...] | None = Field(default=None, description="Only these; all content namespaces if none.")
    readers: dict[int, tuple[str, ...]] = Field(
        default_factory=dict, description="Namespace = groups: who may read it, where an extension restricts it."
    )
    anonymous: Literal["everyone", "accounts"] = Field(
        default="everyone",
        description="Whom a right of anonymous readers reaches: all of the tenant, or joined accounts.",
    )
    udp: str | None = Field(
        default=None, pattern=r"^[^:]+:\d+$", description="host:port on which its UDP change feed is received."
    )
    overlap_s: float = Field(default=15.0, ge=0, description="Changes of so many seconds are asked for again.")

    @model_validator(mode="after")
    def _pair(self) -> MediaWikiSettings:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        return self


class RedmineSettings(_Remote):
    """A Redmine, 4.2 or newer. Its key should be an administrator's: others do not see groups and accounts."""

    type: Literal["redmine"]
    url: WebAddress
    api_key: SecretStr
    text: Literal["textile", "markdown"] = Field(default="textile", description="Redmine's text formatting setting.")
    anonymous: Literal["everyone", "accounts"] = Field(
        default="accounts",
        description="Whom a right of anonymous readers reaches: all of the tenant, or joined accounts.",
    )
    projects: tuple[str, ...] | None = Field(default=None, description="Identifiers of projects; all if none.")
    overlap_s: float = Field(default=5.0, ge=0, description="Changes of so many seconds are asked for again.")


_GIT = re.compile(r"(?:https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+|[^:]+")


def _repository(value: str) -> str:
    if not _GIT.fullmatch(value) or value.startswith("-"):
        raise ValueError("must be an address with https://, ssh:// or file://, user@host:path, or a path")
    return value


class GitSettings(Source):
    """A Git repository of Markdown; who may read stands in its access files, as in a folder."""

    type: Literal["git"]
    url: Annotated[str, AfterValidator(_repository)] = Field(description="What git clones: an address or a path.")
    branch: str = "main"
    path: str = Field(default="", description="Only this folder of it.")
    url_base: str | None = Field(default=None, description="What paths are put behind.")
    poll_s: float = Field(default=10.0, gt=0)
    timeout_s: float = Field(default=60.0, gt=0, description="Seconds for one fetch.")
    webhook_secret: SecretStr | None = None


class S3Settings(Source):
    """A bucket of an S3-compatible store; who may read stands in its access files, as in a folder."""

    type: Literal["s3"]
    bucket: str = Field(min_length=1)
    prefix: str = ""
    endpoint: WebAddress | None = Field(default=None, description="Another store than the vendor's.")
    region: str = "us-east-1"
    access_key: SecretStr | None = Field(default=None, description="Else as the vendor's tools find credentials.")
    secret_key: SecretStr | None = None
    url_base: str | None = None
    walk_s: float = Field(default=30.0, gt=0, description="Seconds between listings: nothing else tells changes.")
    timeout_s: float = Field(default=20.0, gt=0)
    webhook_secret: SecretStr | None = None


class OutboxSettings(Source):
    """A PostgreSQL table that an application writes in its own transactions."""

    type: Literal["outbox"]
    dsn: SecretStr = Field(description="Connection of PostgreSQL, for instance postgresql://user:secret@host/base.")
    table: str = Field(default="public.headwater_outbox", pattern=r"^[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*$")
    mode: Literal["logical", "poll"] = Field(default="logical", description="Logical decoding, or asking the table.")
    slot: str = Field(default="headwater", pattern=r"^[a-z0-9_]{1,63}$")
    publication: str = Field(default="headwater", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    poll_s: float = Field(default=0.25, gt=0)


class TopicSettings(Source):
    """Topics of a Kafka that another program fills: rows as Debezium tells them, or its outbox router's messages."""

    type: Literal["topic"]
    bootstrap: str | None = Field(default=None, description="Another Kafka than Headwater's.")
    topics: tuple[str, ...] = Field(min_length=1)
    format: Literal["debezium", "outbox"]
    id: str = Field(default="id", description="Debezium: column of the immutable id.")
    title: str = Field(default="title", description="Debezium: column of the title.")
    text: str = Field(default="text", description="Debezium: column of the text.")
    url: str | None = Field(default=None, description="Debezium: column of the address.")
    updated_at: str | None = Field(default=None, description="Debezium: column of the last update.")
    content_type: str = "text/markdown; charset=utf-8"
    readers: str | None = Field(default=None, description="Debezium: column with a JSON list of principals.")
    allow: tuple[Principal, ...] = Field(
        default=(), description="Who may read what names no readers; nobody where none is named."
    )
    empty_is_deletion: bool = Field(
        default=False, description="Outbox: an empty payload says that the document is gone (the router's tombstone)."
    )


def _type(value: Any) -> str:
    """A source without a type is a folder."""
    given = value.get("type", "folder") if isinstance(value, dict) else getattr(value, "type", "folder")
    return str(given)


SourceSettings = Annotated[
    Annotated[FolderSettings, Tag("folder")]
    | Annotated[MediaWikiSettings, Tag("mediawiki")]
    | Annotated[RedmineSettings, Tag("redmine")]
    | Annotated[GitSettings, Tag("git")]
    | Annotated[S3Settings, Tag("s3")]
    | Annotated[OutboxSettings, Tag("outbox")]
    | Annotated[TopicSettings, Tag("topic")],
    Discriminator(
        _type,
        custom_error_type="no_such_source",
        custom_error_message="type must be one of folder, mediawiki, redmine, git, s3, outbox, topic",
    ),
]
"""Settings of one source instance of a tenant."""

AnySource = (
    FolderSettings | MediaWikiSettings | RedmineSettings | GitSettings | S3Settings | OutboxSettings | TopicSettings
)
