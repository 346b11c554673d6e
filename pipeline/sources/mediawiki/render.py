"""A page's text as its readers see it, without what they may not read.

Pages are rendered from their wikitext rather than taken from the wiki's cache, which is stale until its job queue has
run: what a template says now is in the text. MediaWiki includes pages without asking who may read them, so what comes
from a namespace with fewer readers than the page's own is left out, however it was included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import mwparserfromhell
from mwparserfromhell.nodes import Template
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from pipeline.sources.mediawiki.api import Refused, WikiApi
from pipeline.sources.mediawiki.site import Scope, Site

HTML = "text/html; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
MOST_CALLS = 50
"""Transclusions that are looked at one by one; of more than these, all are left out."""
SPECIAL = -1
OUTAGES = ("internal_api_error_DB", "assert")
"""Beginnings of errors that say nothing about the page."""


@dataclass(frozen=True)
class Rendered:
    """A body with its type."""

    body: bytes
    content_type: str


def rendered(api: WikiApi, scope: Scope, site: Site, page: Page, text: str) -> Rendered:
    """The body of a page of wikitext. Raises SourceUnavailable."""
    return _Renderer(api, scope, site, page).render(text)


@dataclass(frozen=True)
class Page:
    """What rendering has to know of a page."""

    title: str
    namespace: int
    revision: int


@dataclass(frozen=True)
class _Parsed:
    html: str
    leaks: bool  # holds text from where fewer people may read


@dataclass(frozen=True)
class _Renderer:
    api: WikiApi
    scope: Scope
    site: Site
    page: Page

    def render(self, text: str) -> Rendered:
        try:
            found = self._shown(self._without_lists(text))
            if found is not None:
                return Rendered(found.encode(), HTML)
            # Not surely without what others must not read: its own words, and nothing included.
            code = mwparserfromhell.parse(text)
            _remove(code, _calls(code))
            return Rendered(str(code).encode(), PLAIN)
        except ParserError:
            return Rendered(text.encode(), PLAIN)  # what it includes is only named in it

    def _shown(self, text: str) -> str | None:
        """The page as HTML, None where it cannot be rendered or holds what is restricted whatever is left out."""
        try:
            found = self._parse(text)
            if not found.leaks:
                return found.html
            code = mwparserfromhell.parse(text)
            for calls in (self._leaking(code), _calls(code)):
                _remove(code, calls)
                found = self._parse(str(code))
                if not found.leaks:
                    return found.html
        except Refused as error:
            if error.code.startswith(OUTAGES):
                raise
        return None

    def _without_lists(self, text: str) -> str:
        """Included special pages list what the connector may see, titles of restricted pages too."""
        names = self.site.namespaces[SPECIAL].names if SPECIAL in self.site.namespaces else frozenset({"special"})
        if not re.search(r"\{\{\s*:?\s*(?:" + "|".join(map(re.escape, sorted(names))) + r")\s*:", text, re.IGNORECASE):
            return text
        code = mwparserfromhell.parse(text)
        calls = code.filter_templates(recursive=True)
        _remove(code, [c for c in calls if str(c.name).strip().lstrip(":").partition(":")[0].strip().lower() in names])
        return str(code)

    def _parse(self, text: str) -> _Parsed:
        given = {
            "text": text,
            "title": self.page.title,
            "revid": self.page.revision,
            "contentmodel": "wikitext",
            "prop": "text|templates",
            "disableeditsection": 1,
            "disabletoc": 1,
            "disablelimitreport": 1,  # it holds times: no two answers would be equal
        }
        parsed = self.api.ask("parse", given, post=True)["parse"]
        leaks = any(self.scope.narrower(t["ns"], self.page.namespace) for t in parsed.get("templates", []))
        return _Parsed(parsed["text"], leaks)

    def _leaking(self, code: Wikicode) -> list[Template]:
        """Outermost transclusions that include what is restricted, through whatever template, redirect or parameter."""
        calls = _calls(code)
        spellings = {str(call) for call in calls}
        if len(spellings) > MOST_CALLS:
            return calls
        leaking = {one for one in spellings if self._parse(one).leaks}
        return [call for call in calls if str(call) in leaking]


def _calls(code: Wikicode) -> list[Template]:
    return list(code.filter_templates(recursive=code.RECURSE_OTHERS))


def _remove(code: Wikicode, calls: list[Template]) -> None:
    for call in calls:
        try:
            code.remove(call)
        except ValueError:
            continue  # it went with the one around it
