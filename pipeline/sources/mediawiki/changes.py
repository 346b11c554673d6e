"""What happened at a wiki: recent changes and the log together, each from an overlap on, and whom a change reaches.

The rows of an edit vanish from recent changes with their page, and purged ones do too; the log keeps its rows. Rows may
become visible after later ones, so the last seconds are asked for again and known rows dropped. Pages that include a
changed template have no row of their own: they are found by who transcludes it.
"""

from __future__ import annotations

from itertools import groupby

from pydantic import ValidationError

from pipeline.sources.mediawiki.api import DENIED, Refused, Reply, WikiApi, moment, stamp
from pipeline.sources.mediawiki.cursor import Cursor, Spreading
from pipeline.sources.mediawiki.rows import Row, Story
from pipeline.sources.mediawiki.site import Scope, Site
from pipeline.sources.remote.contract import Changes

ROWS = 200
TITLES = 50
"""Titles of one question: what an account without high limits may ask."""
SPREAD_REQUESTS = 10
"""Questions for dependants in one answer; the rest is in the next one."""
MOST_SPREAD = 500
"""Titles that wait for their dependants: above it no new rows are read."""
DAY = 86_400_000_000
IDLE = 3_600_000_000
"""µs without a row after which the cursor moves on by the wiki's clock."""


def started(api: WikiApi) -> str:
    """A cursor for everything from now on, by the wiki's own clock."""
    return Cursor(at=str(api.query({})["curtimestamp"])).text()


def since(api: WikiApi, scope: Scope, site: Site, cursor: str) -> Changes:
    """What happened since ``cursor``."""
    try:
        state = Cursor.model_validate_json(cursor)
        moment(state.at)
    except (ValidationError, ValueError):
        return Changes(started(api), relist=True)
    story = Story(scope, frozenset(scope.namespaces(site)))
    try:
        if len(state.spread) < MOST_SPREAD and not _rows(api, scope, state, story):
            return Changes(started(api), relist=True)
        _by_title(api, story)
        _merge(state, story.spreading())
        _dependants(api, state, story)
    except Refused as error:
        if error.code not in ("badcontinue", "badtimestamp_rcstart", "badtimestamp"):
            raise
        return Changes(started(api), relist=True)
    return Changes(
        cursor=state.text(),
        touched=story.touched,
        gone=story.gone,
        access=story.access,
        more=state.more is not None or bool(state.spread),
    )


def _rows(api: WikiApi, scope: Scope, state: Cursor, story: Story) -> bool:
    """Read the next rows. False where rows may have been purged before they were read."""
    overlap = int(scope.settings.overlap_s * 1_000_000)
    since = state.since or stamp(moment(state.at) - overlap)
    answer = api.query(
        {
            "list": "recentchanges|logevents",
            "rcdir": "newer",
            "rcstart": since,
            "rctype": "edit|new|log",
            "rcprop": "title|ids|loginfo|timestamp",
            "rclimit": ROWS,
            "ledir": "newer",
            "lestart": since,
            "leprop": "ids|title|type|timestamp|details",
            "lelimit": ROWS,
            **(state.more or {}),
        }
    )
    now = moment(answer["curtimestamp"])
    if state.more is None and now - moment(state.at) > DAY and _purged(api, since):
        return False
    rows = _fresh(answer, state)
    story.tell(rows)
    at = max([state.at, *(row.at for row in rows)])
    state.remember({row.key: row.at for row in rows}, stamp(moment(at) - overlap))
    state.more = answer.get("continue")
    state.since = since if state.more is not None else None
    if state.more is None and now - moment(at) > IDLE:
        at = stamp(now - overlap)
    state.at = at
    return True


def _fresh(answer: Reply, state: Cursor) -> list[Row]:
    """Rows not told before, each once, in order."""
    found = answer.get("query", {})
    changes = [Row.of_change(row) for row in found.get("recentchanges", [])]
    events = [Row.of_log(row) for row in found.get("logevents", [])]
    fresh: dict[str, Row] = {}
    for row in [*changes, *events]:
        if row.key not in state.seen:
            fresh.setdefault(row.key, row)
    return sorted(fresh.values(), key=lambda row: row.at)


def _purged(api: WikiApi, since: str) -> bool:
    """Whether recent changes no longer reach back so far."""
    answer = api.query({"list": "recentchanges", "rcdir": "newer", "rcprop": "timestamp", "rclimit": 1})
    oldest = answer.get("query", {}).get("recentchanges", [])
    return not oldest or str(oldest[0]["timestamp"]) > since


def _by_title(api: WikiApi, story: Story) -> None:
    """Touch pages of which only the title is known."""
    titles = sorted(story.titles)
    for first in range(0, len(titles), TITLES):
        for page in api.titled(titles[first : first + TITLES], {"prop": "info"}):
            story.touch(page.get("ns", 0), page.get("pageid", 0))


def _merge(state: Cursor, new: list[Spreading]) -> None:
    """Put titles behind those that wait. What is being asked for just now is asked again."""
    waiting = {one.title: one for one in state.spread[state.asked :]}
    for one in new:
        if one.title in waiting:
            waiting[one.title].redacted |= one.redacted
        else:
            state.spread.append(one)


def _dependants(api: WikiApi, state: Cursor, story: Story) -> None:
    """Touch the pages that transclude what changed, as far as a few questions reach."""
    for _ in range(SPREAD_REQUESTS):
        if not state.spread:
            return
        redacted = state.spread[0].redacted
        if state.spread_more is None and not state.apart:
            _, alike = next(groupby(state.spread[:TITLES], key=lambda one: one.redacted))
            state.asked = len(list(alike))
        given = {
            "titles": "|".join(one.title for one in state.spread[: state.asked]),
            "prop": "transcludedin",
            "tiprop": "pageid|title|redirect",
            "tilimit": 500,
        }
        try:
            answer = api.query({**given, **(state.spread_more or {})})
        except Refused as error:
            if error.code not in DENIED:
                raise
            state.spread_more = None
            _apart(state)
            continue
        for page in answer.get("query", {}).get("pages", []):
            for dependant in page.get("transcludedin", []):
                if not dependant.get("redirect"):
                    story.reach(dependant["ns"], dependant["pageid"], redacted=redacted)
        state.spread_more = answer.get("continue")
        if state.spread_more is None:
            _done(state)


def _apart(state: Cursor) -> None:
    """One of the titles must not be asked for: from here on each is asked for by itself, and that one left out."""
    if state.asked == 1:
        _done(state)
    else:
        state.apart, state.asked = state.asked, 1


def _done(state: Cursor) -> None:
    del state.spread[: state.asked]
    state.apart = max(0, state.apart - 1)
    state.asked = 1 if state.apart else 0
