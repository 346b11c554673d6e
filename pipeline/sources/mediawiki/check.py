"""What our account can see of a wiki, and what it should see and cannot."""

from __future__ import annotations

import re
import socket
from typing import Any

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.sources.mediawiki import feed, readers
from pipeline.sources.mediawiki.api import WikiApi, moment
from pipeline.sources.mediawiki.probe import Probe, sample
from pipeline.sources.mediawiki.site import FILE, Scope, Site
from pipeline.sources.remote.contract import Finding

TOO_MUCH = ("deletedtext", "viewsuppressed", "suppressrevision")
"""Rights that show what is hidden from readers."""
OLDEST = (1, 35)
CLOCKS_APART_S = 5.0


def findings(api: WikiApi, probe: Probe, scope: Scope, site: Site, clock: Clock, *, listening: bool) -> list[Finding]:
    """All of them. ``listening``: the feed is being received already."""
    answer = api.query({"meta": "userinfo", "uiprop": "rights|groups"})
    user = answer["query"]["userinfo"]
    found = [_version(site), _account(scope, user), _reads(user), _clocks(answer, clock)]
    found += _namespaces(api, probe, scope, site)
    found += [
        Finding(alarm, False, "Correct readers in the settings.") for alarm in readers.unknown_groups(scope, site)
    ]
    found += _files(api, scope, site)
    found += _feed(scope, listening)
    if scope.settings.identity.join == "email":
        found.append(
            Finding("identity.join is 'email'", False, "MediaWiki shows no addresses: use 'login', or list people.")
        )
    return found


def _version(site: Site) -> Finding:
    number = re.search(r"(\d+)\.(\d+)", site.generator)
    new = number is not None and (int(number[1]), int(number[2])) >= OLDEST
    return Finding(f"the wiki is {site.generator}", new, None if new else "Use MediaWiki 1.35 or newer.")


def _account(scope: Scope, user: dict[str, Any]) -> Finding:
    name = scope.settings.username or "nobody"
    excess = [right for right in TOO_MUCH if right in user.get("rights", [])]
    if excess:
        remedy = "Use an account outside the sysop group, or a bot password with the grants basic and highvolume only."
        return Finding(f"{name} is shown hidden revisions ({', '.join(excess)})", False, remedy)
    return Finding(f"asked as {name}, which is not shown what is hidden", True)


def _reads(user: dict[str, Any]) -> Finding:
    may = "read" in user.get("rights", [])
    remedy = None if may else "Give the account the right to read, and its bot password the grant basic."
    return Finding("the account may read" if may else "the account may not read the wiki", may, remedy)


def _clocks(answer: dict[str, Any], clock: Clock) -> Finding:
    apart = (clock.now() - moment(answer["curtimestamp"])) / 1_000_000
    near = -CLOCKS_APART_S <= apart <= CLOCKS_APART_S + 1  # the wiki writes whole seconds
    what = f"the wiki's clock and ours differ by {abs(apart):.0f} s"
    return Finding(what, near, None if near else "Set both by the same time servers: lags are measured between them.")


def _namespaces(api: WikiApi, probe: Probe, scope: Scope, site: Site) -> list[Finding]:
    """One page of each namespace: may we read it, and is it restricted without the settings saying so."""
    found = []
    for given in scope.settings.namespaces or ():
        if given not in site.namespaces:
            found.append(Finding(f"namespace {given} does not exist", False, "Correct namespaces in the settings."))
    undeclared = probe.restricted(site)
    for namespace in scope.namespaces(site):
        name = site.namespaces[namespace].name or "main"
        page = sample(api, namespace)
        if page is None:
            continue
        if not page["actions"].get("read"):
            remedy = "Add it to a group that may read this namespace, or take the namespace out of the settings."
            found.append(Finding(f"the account may not read namespace {name}", False, remedy))
        elif namespace in undeclared:
            remedy = f"Write into the settings which groups may: readers = {{ {namespace} = [...] }}."
            found.append(Finding(f"namespace {name} is restricted and the settings do not say so", False, remedy))
        else:
            found.append(Finding(f"namespace {name} can be read", True))
    return found


def _files(api: WikiApi, scope: Scope, site: Site) -> list[Finding]:
    if FILE not in scope.namespaces(site):
        return []
    asked = {"generator": "allpages", "gapnamespace": FILE, "gaplimit": 1, "prop": "imageinfo", "iiprop": "url"}
    pages = api.query(asked).get("query", {}).get("pages", [])
    files = [image for page in pages for image in page.get("imageinfo", []) if "url" in image]
    if not files:
        return []
    status, _ = api.file(str(files[0]["url"]), 0)
    if status == 200:
        return [Finding("files can be read", True)]
    remedy = (
        "A private wiki gives no files to bot passwords: sign in with the account's own name and password, "
        "or leave out namespace 6."
    )
    return [Finding(f"files cannot be read (status {status})", False, remedy)]


def _feed(scope: Scope, listening: bool) -> list[Finding]:
    udp = scope.settings.udp
    if udp is None or listening:
        return []
    try:
        receiver: socket.socket = feed.bound(udp, f"sources.{scope.settings.name}.udp")
    except ConfigError as error:
        return [Finding(error.problem, False, error.remedy)]
    receiver.close()
    return [Finding(f"the change feed can be received on {udp}", True)]
