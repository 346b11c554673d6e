"""The fleet: one index consumer for every generation that is kept up, as the records of the generations say.

    Generations ──look every second──▶ wanted ──▶ start ▸ watch ▸ restart ▸ replace ▸ stop

The active generation's consumer has normal priority, those of ready and standby ones a lower one. A building
generation is written by the workers of its build; only where none is active yet does the fleet build the first one
itself. When a lowered generation becomes active its consumer gets normal priority. Where that is not permitted it is
replaced: a second one starts beside it, and the first leaves when the second is ready, so that the live lane never
waits for a model to load. Children leave when their fleet dies (``consumers.watch``), and a new fleet starts new ones.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from consumers.backoff import Backoff
from consumers.children import Child
from consumers.priority import LOW
from pipeline.clock import Clock
from pipeline.errors import Retry
from schemas.generation import Generation

log = logging.getLogger("headwater.fleet")

LOOK_S = 1.0
LEAVE_S = 30.0
STOP_S = 7.0  # with the looks between, less than the supervisor gives the whole fleet
SETTLED_S = 60.0  # a child that lived as long has not failed in a row
KEPT_UP = ("ready", "active", "standby")

Launch = Callable[[str, str], Child]  # generation, member


@dataclass
class _Post:
    """The place of one generation's consumer."""

    current: Child | None = None
    successor: Child | None = None
    lowered: bool = False
    page: dict[str, object] | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, most=30.0))
    due: float = 0.0  # when the next start may be
    starts: int = 0
    ended: str = ""  # how the last one that nobody asked to leave ended


class Fleet:
    """Keeps children as wanted. ``tick`` and ``stop`` are called by one thread, the rest by any."""

    def __init__(self, launch: Launch, member: str, clock: Clock) -> None:
        self._launch = launch
        self._member = member
        self._clock = clock
        self._posts: dict[str, _Post] = {}
        self._states: dict[str, str] = {}
        self._leaving: list[tuple[Child, float]] = []
        self._active: str | None = None
        self._stopping = False

    # ------------------------------------------------------------ keeping

    def tick(self, known: Mapping[str, Generation], active: str | None) -> None:
        """Bring the children to what the records say."""
        self._active = active
        self._states = {name: g.state for name, g in sorted(known.items())}
        first = active is None
        wanted = {n for n, g in known.items() if g.state in KEPT_UP or (first and g.state == "building")}
        for name in sorted(wanted):
            self._keep(name, self._posts.setdefault(name, _Post()), low=not first and name != active)
        for name in [n for n in self._posts if n not in wanted and n in known]:
            self._dismiss(self._posts.pop(name))
        self._reap()

    def look(self) -> None:
        """Keep what there is while the records cannot be read."""
        for name, post in list(self._posts.items()):
            self._keep(name, post, low=post.lowered)
        self._reap()

    def _keep(self, name: str, post: _Post, *, low: bool) -> None:
        now = self._clock.elapsed()
        self._note_ends(name, post, now)
        if post.current is None:
            if now >= post.due:
                post.current, post.lowered = self._start(name, post), low
        elif post.lowered and not low and post.successor is None and post.current.restore():
            post.lowered = False
        elif post.lowered and not low and post.successor is None and now >= post.due:
            log.info("a consumer of normal priority replaces that of %s", name)
            post.successor = self._start(name, post)
        elif low and not post.lowered:
            post.lowered = True
        if post.current is not None and post.lowered:
            post.current.lower(LOW)
        post.page = post.current.page() if post.current is not None else None
        if post.successor is not None and post.successor.page() is not None:
            if post.current is not None:
                self._send_away(post.current)
            post.current, post.successor, post.lowered = post.successor, None, low

    def _start(self, name: str, post: _Post) -> Child:
        others = {child.member for child in (post.current, post.successor) if child is not None}
        member = self._member if self._member not in others else f"{self._member}-next"
        child = self._launch(name, member)
        post.starts += 1
        log.info("consumer started", extra={"fields": {"generation": name, "pid": child.pid, "member": member}})
        return child

    def _note_ends(self, name: str, post: _Post, now: float) -> None:
        """Forget children that ended, and wait before the next start."""
        for which in ("current", "successor"):
            child: Child | None = getattr(post, which)
            status = child.status() if child is not None else None
            if child is None or status is None:
                continue
            setattr(post, which, None)
            if child.age() >= SETTLED_S:
                post.backoff.reset()
            post.due = now + post.backoff.next()
            post.ended = f"status {status}" if status >= 0 else f"signal {-status}"
            log.warning("the consumer of %s ended (%s)", name, post.ended)

    def _dismiss(self, post: _Post, seconds: float = LEAVE_S) -> None:
        for child in (post.current, post.successor):
            if child is not None and child.status() is None:
                self._send_away(child, seconds)

    def _send_away(self, child: Child, seconds: float = LEAVE_S) -> None:
        child.leave()
        self._leaving.append((child, self._clock.elapsed() + seconds))

    def _reap(self) -> None:
        """Wait for those that were asked to leave; kill those that take too long."""
        now = self._clock.elapsed()
        left: list[tuple[Child, float]] = []
        for child, until in self._leaving:
            if child.status() is not None:
                continue
            if now < until:
                left.append((child, until))
            else:
                log.warning("the consumer with pid %d did not leave in time: killed", child.pid)
                child.kill()
        self._leaving = left

    def stop(self, pause: Callable[[], object]) -> None:
        """Every child leaves in order; ``pause`` is called between the looks whether they are gone."""
        self._stopping = True
        soon = self._clock.elapsed() + STOP_S
        self._leaving = [(child, min(until, soon)) for child, until in self._leaving]
        for name in list(self._posts):
            self._dismiss(self._posts.pop(name), STOP_S)
        while self._leaving:
            pause()
            self._reap()

    # ------------------------------------------------------------ telling

    def health(self) -> dict[str, object]:
        """What /healthz answers: ``unready`` until the active generation's consumer answers, then ``running``."""
        posts = dict(self._posts)
        serving = posts.get(self._active) if self._active is not None else next(iter(posts.values()), None)
        well = serving is not None and serving.page is not None
        return {
            "state": "stopping" if self._stopping else "running" if well else "unready",
            "active": self._active,
            "generations": self._states,
            "consumers": {name: _told(post) for name, post in sorted(posts.items())},
            "leaving": len(self._leaving),
        }

    def render(self) -> bytes:
        """The metrics of all children, each sample with its generation."""
        current = {name: post.current for name, post in dict(self._posts).items() if post.current is not None}
        return merged({name: child.metrics() for name, child in current.items()})


def _told(post: _Post) -> dict[str, object]:
    return {
        "pid": post.current.pid if post.current is not None else None,
        "member": post.current.member if post.current is not None else None,
        "priority": "low" if post.lowered else "normal",
        "replaced_by": post.successor.pid if post.successor is not None else None,
        "starts": post.starts,
        "last_end": post.ended,
        "page": post.page,
    }


_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+.*)$")


def merged(pages: Mapping[str, str]) -> bytes:
    """Metrics of several processes as one page: a label ``generation`` keeps their samples apart."""
    comments: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for generation, page in sorted(pages.items()):
        family = ""
        for line in page.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                if line not in comments.setdefault(family, []):
                    comments[family].append(line)
            elif (found := _SAMPLE.match(line)) is not None:
                labels = found["labels"] or ""
                if 'generation="' not in labels:
                    labels = ",".join(part for part in (labels, f'generation="{generation}"') if part)
                samples.setdefault(family, []).append(f"{found['name']}{{{labels}}} {found['value']}")
    lines = [line for family in comments for line in (*comments[family], *samples.get(family, ()))]
    return ("\n".join(lines) + "\n").encode("utf-8") if lines else b""


def main(arguments: Sequence[str]) -> int:
    """``python -m consumers fleet [--member NAME]``: until a signal comes."""
    from consumers.children import Process
    from consumers.process import Stopped, Stopping, parse
    from pipeline.clock import SystemClock
    from pipeline.health import HealthServer
    from pipeline.index.store import WeaviateStore
    from pipeline.settings import load

    options = parse("fleet", arguments, "Runs an index consumer for every generation that is kept up.")
    settings = load()
    stopping = Stopping()
    fleet = Fleet(Process, options.member or "fleet", SystemClock())
    health = HealthServer.from_environment(fleet.health, fleet)
    try:
        store = stopping.retry("Weaviate", lambda: WeaviateStore(settings))
        stopping.retry("Weaviate", store.ensure_base)
        while not stopping.event.is_set():
            try:
                fleet.tick(store.read_generations(), store.active_generation())
            except Retry as error:
                log.warning("the generations cannot be read: %s", error)
                fleet.look()
            stopping.event.wait(LOOK_S)
        store.close()
    except Stopped:
        pass
    finally:
        fleet.stop(lambda: time.sleep(0.05))
        if health is not None:
            health.close()
    log.info("left in order")
    return 0
