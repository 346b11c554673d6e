"""A MediaWiki as the contract of remote systems asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from pipeline.clock import Clock
from pipeline.settings_sources import MediaWikiSettings, Person
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.mediawiki import bodies, changes, check, feed, listing, readers
from pipeline.sources.mediawiki.api import WikiApi
from pipeline.sources.mediawiki.probe import Probe
from pipeline.sources.mediawiki.site import FACTS, Scope, Site
from pipeline.sources.remote.contract import Answer, Capabilities, Changes, Finding, Page, Readership
from schemas.keys import DocumentRef


class MediaWiki:
    """``System`` of one wiki.

    Documents are its pages and, of kind ``file``, its files, by page id. Redirects are none. ``people`` is the
    directory of the company; ``max_bytes`` bounds a file.
    """

    def __init__(
        self,
        tenant: str,
        settings: MediaWikiSettings,
        people: tuple[Person, ...],
        clock: Clock,
        *,
        max_bytes: int,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._settings, self._clock, self._max_bytes = settings, clock, max_bytes
        self._people = tuple(p for p in people if p.tenant == tenant)
        self._scope = Scope(tenant, settings)
        self._api = WikiApi(settings, clock, transport)
        anonymous = settings.model_copy(update={"username": None, "password": None})
        self._probe = Probe(self._api, WikiApi(anonymous, clock, transport), self._scope)
        self._known: Site | None = None
        self._feed: feed.Feed | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Deletions are told. Rights that the wiki's own settings give are not: who may read is compared."""
        return Capabilities(
            deletions="events",
            push="notify" if self._settings.udp is not None else "none",
            undated=("suppressed revisions", "text that extensions bring from elsewhere"),
            access="poll",
            kinds=("page", "file"),
        )

    @property
    def reach(self) -> Reach:
        """The way to the wiki."""
        return self._api.reach

    def start(self) -> str:
        """A cursor for what happens from now on."""
        with _understood():
            return changes.started(self._api)

    def listing(self, at: str | None) -> Page:
        """Pages of each namespace by title, redirects left out."""
        with _understood():
            site = self._asked() if at is None else self._site()
            return listing.page_of(self._api, self._scope, site, at)

    def changes(self, cursor: str) -> Changes:
        """What happened since: from recent changes, the log, and who transcludes what changed."""
        with _understood():
            return changes.since(self._api, self._scope, self._site(), cursor)

    def fetch(self, document: DocumentRef) -> Answer:
        """A page as its readers see it, or the bytes of a file."""
        with _understood():
            return bodies.fetched(self._api, self._scope, self._site(), document, self._max_bytes)

    def readers(self) -> Readership:
        """Accounts, groups and namespaces."""
        with _understood():
            site = self._asked()
            self._scope.closed = self._probe.restricted(site)
            return readers.readership(self._api, self._scope, site, self._people)

    def check(self) -> list[Finding]:
        """What our account can see, and what it should see and cannot."""
        with _understood():
            site, listening = self._asked(), self._feed is not None
            return check.findings(self._api, self._probe, self._scope, site, self._clock, listening=listening)

    def listen(self, notify: Callable[[DocumentRef | None], None]) -> None:
        """Receive the wiki's change feed, where the settings name an address. It does not say which page is meant."""
        if self._settings.udp is not None and self._feed is None:
            receiver = feed.bound(self._settings.udp, f"sources.{self._settings.name}.udp")
            self._feed = feed.Feed(receiver, lambda: notify(None))

    def committed(self, cursor: str) -> None:
        """The wiki keeps nothing for us."""

    def close(self) -> None:
        """Disconnect."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        self._probe.close()
        self._api.close()

    def _site(self) -> Site:
        return self._known if self._known is not None else self._asked()

    def _asked(self) -> Site:
        """The wiki as it describes itself now."""
        answer = self._api.query({"meta": "siteinfo", "siprop": FACTS})
        self._known = Site.of(answer["query"])
        self._api.reach.notes["version"] = self._known.generator
        return self._known


@contextmanager
def _understood() -> Iterator[None]:
    """An answer without what it must hold, as from a proxy or another version, is no answer."""
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise SourceUnavailable(
            f"the wiki's answer is not as it should be ({type(error).__name__}: {error})"
        ) from error
