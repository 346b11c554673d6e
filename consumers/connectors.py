"""Makes the connector of a configured source: the one place that knows every type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol, runtime_checkable

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from pipeline.settings_sources import (
    AnySource,
    FolderSettings,
    GitSettings,
    MediaWikiSettings,
    OutboxSettings,
    RedmineSettings,
    S3Settings,
    TopicSettings,
)
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.connector import Connector
from pipeline.sources.folder.check import findings as folder_findings
from pipeline.sources.folder.source import FolderSource
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from pipeline.sources.remote.contract import Capabilities, Finding, System
from pipeline.sources.remote.source import RemoteSource, Rhythm
from schemas.keys import DocumentRef


def connector_of(settings: Settings, source: AnySource, clock: Clock) -> Callable[[Ledger], Connector]:
    """What makes the connector of a configured source. Raises ConfigError where its settings cannot work."""
    if isinstance(source, FolderSettings):
        return _folder(settings, source, clock)
    if isinstance(source, OutboxSettings):
        return _outbox(settings, source, clock)
    if isinstance(source, TopicSettings):
        return _topic(settings, source, clock)
    return _remote(settings, source, clock)


def check(source: AnySource) -> None:
    """Raises ConfigError where the settings of a source cannot work, whatever its system says."""
    if isinstance(source, FolderSettings) and not source.path.is_dir():
        raise ConfigError("sources.path", f"{source.path} is not a folder", "Name an existing folder.")


def _folder(settings: Settings, source: FolderSettings, clock: Clock) -> Callable[[Ledger], Connector]:
    def connect(ledger: Ledger) -> Connector:
        return FolderSource(
            source.tenant,
            source.name,
            str(source.path),
            clock=clock,
            version=ledger.next_version,
            url_base=source.url_base,
            max_bytes=settings.bodies.max_bytes,
        )

    return connect


def _outbox(settings: Settings, source: OutboxSettings, clock: Clock) -> Callable[[Ledger], Connector]:
    def connect(ledger: Ledger) -> Connector:
        from pipeline.sources.outbox.source import Outbox

        return Outbox(source, clock, max_bytes=settings.bodies.max_bytes, known=ledger.state)

    return connect


def _topic(settings: Settings, source: TopicSettings, clock: Clock) -> Callable[[Ledger], Connector]:
    def connect(ledger: Ledger) -> Connector:
        from pipeline.bus.foreign import ForeignRecords
        from pipeline.sources.topic.source import TopicSource

        role = f"topics.{source.tenant}.{source.name}"
        records = ForeignRecords(settings, source.topics, clock, role=role, bootstrap=source.bootstrap)
        return TopicSource(source, clock, records=records, known=ledger.state)

    return connect


def _remote(settings: Settings, source: AnySource, clock: Clock) -> Callable[[Ledger], Connector]:
    def connect(ledger: Ledger) -> Connector:
        return RemoteSource(
            system_of(settings, source, clock),
            clock,
            rhythm_of(source),
            known=ledger.state,
            states=ledger.states,
            guard=DeletionGuard(settings.reconcile.missing_share, settings.reconcile.missing_count),
        )

    return connect


def rhythm_of(source: AnySource) -> Rhythm:
    """How often a source is asked. What says all of its changes by itself, or lists them often, is not swept."""
    if isinstance(source, MediaWikiSettings | RedmineSettings):
        return Rhythm(source.poll_s, source.access_s, source.sweep_s)
    if isinstance(source, GitSettings):
        return Rhythm(source.poll_s, max(source.poll_s, 60.0), sweep_s=86_400.0)
    # a bucket is asked nothing but its access files: a listing is what tells its changes
    return Rhythm(1.0, source.walk_s, sweep_s=86_400.0)


def system_of(settings: Settings, source: AnySource, clock: Clock) -> System:
    """The system behind a source that is asked over an API. Raises ConfigError.

    Each is imported where it is used: what it needs is installed by those who use it.
    """
    most = settings.bodies.max_bytes
    if isinstance(source, MediaWikiSettings):
        from pipeline.sources.mediawiki.system import MediaWiki

        return MediaWiki(source.tenant, source, settings.people, clock, max_bytes=most)
    if isinstance(source, RedmineSettings):
        from pipeline.sources.redmine.system import Redmine

        return Redmine(source.tenant, source, settings.people, clock, max_bytes=most)
    if isinstance(source, GitSettings):
        from pipeline.sources.git.system import GitRepository

        return GitRepository(source, clock, max_bytes=most, cache=settings.state_dir.absolute() / "repositories")
    if isinstance(source, S3Settings):
        from pipeline.sources.s3.system import Bucket

        return Bucket(source, clock, max_bytes=most)
    raise ConfigError("sources.type", f"{source.type} has no system", "Choose another type.")


def hints_of(settings: Settings, clock: Clock) -> Callable[[AnySource, bytes], Sequence[DocumentRef]]:
    """What gives the documents that a source's notification names. It raises ValueError where that is none."""
    systems: dict[tuple[str, str], System] = {}

    def hints(source: AnySource, body: bytes) -> Sequence[DocumentRef]:
        if not isinstance(source, S3Settings):
            return ()
        from pipeline.sources.s3.system import Bucket

        key = (source.tenant, source.name)
        if key not in systems:
            systems[key] = system_of(settings, source, clock)
        bucket = systems[key]
        assert isinstance(bucket, Bucket)
        return bucket.event_refs(body)

    return hints


# -- looking without owning --------------------------------------------------------------------------------------------


@runtime_checkable
class Checked(Protocol):
    """What can say what its credentials see."""

    def check(self) -> list[Finding]: ...

    def close(self) -> None: ...


def findings_of(settings: Settings, source: AnySource, clock: Clock) -> list[Finding]:
    """What can be seen at a source. Takes nothing over and writes nothing. Raises ConfigError or SourceUnavailable."""
    if isinstance(source, FolderSettings):
        return folder_findings(source, clock)
    checked: object
    if isinstance(source, OutboxSettings | TopicSettings):
        ledger = Ledger(source.tenant, source.name, clock, BodyPlacer(None))
        checked = connector_of(settings, source, clock)(ledger)
    else:
        checked = system_of(settings, source, clock)
    assert isinstance(checked, Checked)
    with closing(checked):
        return checked.check()


def capabilities_of(settings: Settings, source: AnySource, clock: Clock) -> Capabilities:
    """What a source can tell by itself. Raises ConfigError."""
    if isinstance(source, FolderSettings):
        return Capabilities(deletions="events", push="notify", access="events")
    if isinstance(source, OutboxSettings | TopicSettings):
        return Capabilities(deletions="events", access="events")
    with closing(system_of(settings, source, clock)) as system:
        return system.capabilities
