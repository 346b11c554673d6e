"""Restrictions that the settings do not know of, found by asking as nobody.

No API tells which namespaces an extension restricts. Where anonymous readers may read the wiki but not a page of it,
the page's namespace is restricted.
"""

from __future__ import annotations

from typing import Any

from pipeline.sources.mediawiki.api import WikiApi
from pipeline.sources.mediawiki.readers import ANYBODY
from pipeline.sources.mediawiki.site import Scope, Site

FIRST_OWN = 100
"""Namespaces from here on are a wiki's own."""
MOST = 50
"""Pages of one question."""


class Probe:
    """Asks ``nobody``, an anonymous session, about one page of each namespace that is indexed or could be included."""

    def __init__(self, api: WikiApi, nobody: WikiApi, scope: Scope) -> None:
        self._api, self._nobody, self._scope = api, nobody, scope
        self._samples: dict[int, int] = {}  # page by namespace

    def restricted(self, site: Site) -> frozenset[int]:
        """Namespaces that are restricted although the settings do not say so."""
        if "read" not in site.rights.get(ANYBODY, ()):
            return frozenset()
        own = [n for n in site.namespaces if n >= FIRST_OWN and n % 2 == 0]
        asked = [n for n in sorted({*self._scope.namespaces(site), *own}) if self._scope.declared(n) is None]
        for namespace in asked:
            if namespace not in self._samples and (page := sample(self._api, namespace)) is not None:
                self._samples[namespace] = page["pageid"]
        pages = [self._samples[n] for n in asked if n in self._samples][:MOST]
        if not pages:
            return frozenset()
        query = {"pageids": "|".join(map(str, pages)), "prop": "info", "intestactions": "read"}
        found = self._nobody.query(query)["query"]["pages"]
        there = {page["pageid"]: page for page in found if not page.get("missing")}
        self._samples = {n: page for n, page in self._samples.items() if page in there and there[page]["ns"] == n}
        return frozenset(
            page["ns"] for page in there.values() if not page["actions"].get("read") and page["ns"] in asked
        )

    def close(self) -> None:
        """Disconnect."""
        self._nobody.close()


def sample(api: WikiApi, namespace: int) -> dict[str, Any] | None:
    """A page of a namespace, with what we may do to it; None where there is none."""
    asked = {"generator": "allpages", "gapnamespace": namespace, "gaplimit": 1, "prop": "info", "intestactions": "read"}
    pages: list[dict[str, Any]] = api.query(asked).get("query", {}).get("pages", [])
    return pages[0] if pages else None
