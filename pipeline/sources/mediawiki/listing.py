"""Everything that stands: each namespace by title, then what was moved meanwhile."""

from __future__ import annotations

import json
from typing import Any

from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.mediawiki.api import Reply, WikiApi, moment, stamp, updated_at
from pipeline.sources.mediawiki.site import FILE, Scope, Site
from pipeline.sources.remote.contract import Listed, Page

PER_PAGE = 500
PROPERTIES = {"prop": "info|revisions", "rvprop": "ids|timestamp"}
"""No text: asked for with text, one unreadable title fails the whole answer."""
MAX_PARTS = 100
"""Answers that one page of the listing is put together from."""


def page_of(api: WikiApi, scope: Scope, site: Site, at: str | None) -> Page:
    """One page. Redirects are no documents: the page that they lead to is.

    Titles are the order, so a page that is moved while the listing runs could be jumped over: the last pages are those
    of the log of moves since it began.
    """
    state: dict[str, Any] = {"namespaces": scope.namespaces(site)} if at is None else json.loads(at)
    if state["namespaces"]:
        namespace = state["namespaces"][0]
        given = {
            "generator": "allpages",
            "gapnamespace": namespace,
            "gapfilterredir": "nonredirects",
            "gaplimit": PER_PAGE,
            **_properties(namespace),
        }
        pages, more, now = _whole(api, given, state.get("continue"), "gap")
        left = state["namespaces"] if more else state["namespaces"][1:]
        found = tuple(_listed(scope, one) for one in pages)
        return Page(found, _next(left, state.get("began", now), more), site.pages if at is None else None)
    return _moved(api, scope, site, state)


def _moved(api: WikiApi, scope: Scope, site: Site, state: dict[str, Any]) -> Page:
    """Pages that were moved since the listing began."""
    given = {
        "list": "logevents",
        "letype": "move",
        "ledir": "newer",
        "lestart": stamp(moment(state["began"]) - int(scope.settings.overlap_s * 1_000_000)),
        "lelimit": 50,
        "leprop": "ids|title|details",
    }
    answer = api.query({**given, **(state.get("continue") or {})})
    titles = {str(row.get("params", {}).get("target_title", "")) for row in answer["query"]["logevents"]} - {""}
    pages: list[dict[str, Any]] = []
    if titles:
        asked = {"titles": "|".join(sorted(titles)), **_properties(FILE)}
        pages, _, _ = _whole(api, asked, None, "")
    scoped = set(scope.namespaces(site))
    found = [p for p in pages if p.get("pageid") and p["ns"] in scoped and not p.get("redirect")]
    more = answer.get("continue")
    return Page(tuple(_listed(scope, p) for p in found), _next([], state["began"], more) if more else None)


def _next(namespaces: list[int], began: str, more: dict[str, Any] | None) -> str:
    return json.dumps({"namespaces": namespaces, "began": began, "continue": more})


def _properties(namespace: int) -> dict[str, Any]:
    if namespace != FILE:
        return PROPERTIES
    return {**PROPERTIES, "prop": "info|revisions|imageinfo", "iiprop": "sha1|timestamp"}


def _whole(
    api: WikiApi, given: dict[str, Any], more: dict[str, Any] | None, prefix: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, str]:
    """The pages of one batch with all their properties, how to ask for the next batch, and the wiki's time."""
    pages: dict[Any, dict[str, Any]] = {}
    began = None
    for _ in range(MAX_PARTS):
        answer = api.query({**given, **(more or {})})
        began = began or str(answer["curtimestamp"])
        for page in answer.get("query", {}).get("pages", []):
            pages.setdefault(page.get("pageid", page.get("title")), {}).update(page)
        more = answer.get("continue")
        if _complete(answer):
            following = more if more and prefix and any(k.startswith(prefix) for k in more) else None
            return list(pages.values()), following, began
        if more is None:
            break
    raise SourceUnavailable("the wiki's list of pages does not end")


def _complete(answer: Reply) -> bool:
    return bool(answer.get("batchcomplete")) or "continue" not in answer


def _listed(scope: Scope, page: dict[str, Any]) -> Listed:
    return Listed(scope.ref(page["ns"], page["pageid"]), scope.revision(page), updated_at(page))
