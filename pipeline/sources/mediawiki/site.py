"""What a wiki is: its namespaces, who may read them, how its titles become addresses. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pipeline.settings_sources import MediaWikiSettings
from schemas.access import AccessRule, audience
from schemas.keys import DocumentRef

FILE = 6
FACTS = "general|namespaces|namespacealiases|usergroups|statistics"
WIKI_READERS = "read"
"""Audience of those with the wiki-wide right to read."""


@dataclass(frozen=True)
class Namespace:
    """``names`` are all spellings of it, in lower case."""

    id: int
    name: str
    content: bool
    names: frozenset[str]


@dataclass(frozen=True)
class Site:
    """A wiki as it describes itself. ``rights`` are those of each group, ``*`` and ``user`` among them."""

    generator: str
    namespaces: dict[int, Namespace]
    rights: dict[str, frozenset[str]]
    pages: int

    @staticmethod
    def of(query: dict[str, Any]) -> Site:
        """From the answer to ``siprop`` = ``FACTS``."""
        aliases: dict[int, set[str]] = {}
        for one in query.get("namespacealiases", []):
            aliases.setdefault(one["id"], set()).add(one["alias"].lower())
        namespaces = {}
        for one in query["namespaces"].values():
            names = {str(one.get("name", "")).lower(), str(one.get("canonical", "")).lower()} | aliases.get(
                one["id"], set()
            )
            namespaces[one["id"]] = Namespace(
                one["id"], one.get("name", ""), bool(one.get("content")), frozenset(names)
            )
        return Site(
            generator=query["general"]["generator"],
            namespaces=namespaces,
            rights={g["name"]: frozenset(g.get("rights", [])) for g in query["usergroups"]},
            pages=int(query.get("statistics", {}).get("pages", 0)),
        )


class Scope:
    """Which namespaces are indexed, under which ids, and who may read each."""

    def __init__(self, tenant: str, settings: MediaWikiSettings) -> None:
        self.tenant, self.settings = tenant, settings
        self.closed: frozenset[int] = frozenset()  # restricted at the wiki, and not said to whom

    def namespaces(self, site: Site) -> list[int]:
        """Those that are listed and followed, in order."""
        if self.settings.namespaces is not None:
            return sorted(n for n in self.settings.namespaces if n in site.namespaces)
        return sorted({n.id for n in site.namespaces.values() if n.content} | {FILE})

    def restricted(self, namespace: int) -> frozenset[str] | None:
        """The only groups that may read it, None where whoever may read the wiki may."""
        declared = self.declared(namespace)
        return frozenset() if declared is None and namespace in self.closed else declared

    def declared(self, namespace: int) -> frozenset[str] | None:
        """What the settings say of ``restricted``. Talk follows what it is about."""
        readers = self.settings.readers
        given = readers.get(namespace, readers.get(namespace - 1) if namespace % 2 else None)
        return frozenset(given) if given is not None else None

    def narrower(self, inner: int, outer: int) -> bool:
        """Whether somebody who may read ``outer`` may perhaps not read ``inner``."""
        few, many = self.restricted(inner), self.restricted(outer)
        return few is not None and (many is None or not many <= few)

    def revision(self, page: dict[str, Any]) -> str:
        """Equal while a page's text, templates, title and file are, and what may be shown of what it includes.

        From ``prop=info``, for files with ``imageinfo``.
        """
        parts = [str(page.get("lastrevid", 0)), str(page.get("touched", ""))]
        parts += [str(image.get("sha1", "")) for image in page.get("imageinfo", [])[:1]]
        restrictions = [sorted((n, *sorted(g)) for n, g in self.settings.readers.items()), sorted(self.closed)]
        parts += [hashlib.sha256(repr(restrictions).encode()).hexdigest()[:8]] if any(restrictions) else []
        return "@".join(parts)

    def audience(self, namespace: int) -> str:
        """Principal of those who may read a namespace."""
        return audience(self.settings.name, f"ns:{namespace}")

    def rule(self, namespace: int) -> AccessRule:
        """Rule of everything in a namespace."""
        return AccessRule.any_of(self.audience(namespace))

    def ref(self, namespace: int, page: int) -> DocumentRef:
        """The document of a page; its id there survives renames."""
        kind = "file" if namespace == FILE else "page"
        return DocumentRef(tenant=self.tenant, source=self.settings.name, kind=kind, id=str(page))

    def url(self, title: str, page: int) -> str:
        """One address for each page, however its title is spelt elsewhere."""
        if self.settings.page_url is None:
            return f"{self.settings.url}/index.php?curid={page}"
        return f"{self.settings.page_url}/{quote(title.replace(' ', '_'), safe='/:;@$!*(),~')}"
