"""A wiki with public, Finance and HR pages: two sources of it, one that hears its change feed and one that polls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from infra.ports import free_port
from infra.servers.mediawiki import (
    BOT_PASSWORD,
    CONNECTOR,
    RESTRICTED,
    MediaWikiServer,
    WikiUser,
    available,
)
from infra.sources_check.play import TENANT, Allowed, Play, Sees, Step, all_see
from infra.sources_check.stage import Stage
from schemas.keys import DocumentRef

PEOPLE = ("Ann", "Bob", "Eve")  # finance, hr, neither
_all = partial(all_see, PEOPLE)
GROUPS = {"Ann": "finance", "Bob": "hr"}
PUSHED, POLLED = "wiki", "wiki-polled"


class MediaWikiSystem:
    """See the module."""

    name = "mediawiki"

    def __init__(self) -> None:
        self._server: MediaWikiServer | None = None
        self._ids: dict[str, int] = {}

    def available(self) -> str | None:
        """Whether the package is there."""
        return available()

    def start(self, folder: Path) -> Play:
        """Install, serve, seed."""
        ports = f"127.0.0.1:{free_port()}"
        server = MediaWikiServer(folder, udp_port=int(ports.rpartition(":")[2]))
        folder.mkdir(parents=True, exist_ok=True)
        self._server = server
        server.start()
        server.restrict(RESTRICTED)
        for person in PEOPLE:
            server.admin.create(person)
        for person, group in GROUPS.items():
            server.admin.groups(person, add=group)
        for title, text in (
            ("Latency", "The quokka gateway answers within ninety milliseconds."),
            ("Finance:Budget", "The wombat budget holds four million."),
            ("HR:Plan", "The numbat plan moves eleven people."),
            ("Template:Notice", "The bilby notice stands on every page."),
            ("Notices", "{{Notice}}"),
            ("Overview", "An overview of plans. {{:HR:Plan}}"),
        ):
            self._ids[title], _ = server.admin.edit(title, text)
        server.run_jobs()
        return Play(
            self.name,
            {PUSHED: "push", POLLED: "poll"},
            self._steps,
            self._allowed,
            begins=(
                Sees("Eve", "quokka gateway"),
                Sees("Ann", "wombat budget"),
                Sees("Eve", "wombat budget", False),
                Sees("Bob", "numbat plan"),
                Sees("Ann", "numbat plan", False),
                Sees("Eve", "bilby notice"),
            ),
            settings=[self._source(PUSHED, udp=ports), self._source(POLLED)],
        )

    def ready(self, stage: Stage) -> None:
        """Nothing waits for the product."""

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()

    def _source(self, name: str, **more: object) -> dict[str, object]:
        assert self._server is not None
        return {
            "name": name,
            "tenant": TENANT,
            "type": "mediawiki",
            "url": self._server.url,
            "username": f"{CONNECTOR}@sync",
            "password": BOT_PASSWORD,
            "readers": {str(n): list(groups) for n, groups in RESTRICTED.items()},
            "poll_s": 30.0 if more else 1.0,
            "access_s": 1.0,
            "sweep_s": 600.0,
            "requests_per_s": 50.0,
            "identity": {"join": "login"},
            **more,
        }

    def _steps(self, stage: Stage) -> Iterator[Step]:
        assert self._server is not None
        wiki = self._server.admin
        yield Step(
            "a page is made",
            lambda: self._edit("Ferries", "The dugong ferry leaves at noon."),
            _all("dugong ferry"),
        )
        yield Step(
            "it is edited",
            lambda: self._edit("Ferries", "The dugong ferry leaves at seven, says the pademelon."),
            (*_all("says the pademelon"), *_all("leaves at noon", False)),
        )
        yield Step(
            "it moves into a restricted namespace",
            lambda: wiki.move("Ferries", "HR:Ferries", noredirect=1),
            (Sees("Bob", "says the pademelon"), Sees("Eve", "says the pademelon", False)),
        )
        yield Step(
            "it moves back",
            lambda: wiki.move("HR:Ferries", "Ferries", noredirect=1),
            _all("says the pademelon"),
        )
        yield Step(
            "a page is moved over a redirect",
            lambda: self._over_a_redirect(),
            _all("says the pademelon"),
        )
        yield Step("it is deleted", lambda: wiki.delete("Ferries"), _all("says the pademelon", False))
        yield Step("it is restored", lambda: wiki.restore("Ferries"), _all("says the pademelon"))
        yield from self._secrets(wiki)
        yield Step(
            "a template is edited",
            lambda: self._template("The potoroo notice stands on every page."),
            (*_all("potoroo notice"), *_all("bilby notice", False)),
        )
        yield Step(
            "somebody joins a group",
            lambda: wiki.groups("Eve", add="finance"),
            (Sees("Eve", "wombat budget"), Sees("Eve", "numbat plan", False)),
        )
        yield Step(
            "somebody leaves it",
            lambda: wiki.groups("Eve", remove="finance"),
            (Sees("Eve", "wombat budget", False), Sees("Ann", "wombat budget")),
        )
        yield Step(
            "a file is uploaded",
            lambda: wiki.upload("Rota.txt", b"The bettong rota begins on Monday."),
            _all("bettong rota"),
        )
        yield Step(
            "a new version of it",
            lambda: wiki.upload("Rota.txt", b"The quoll rota begins on Friday."),
            (*_all("quoll rota"), *_all("bettong rota", False)),
        )
        yield Step("the file is deleted", lambda: wiki.delete("File:Rota.txt"), _all("quoll rota", False))

    def _secrets(self, wiki: WikiUser) -> Iterator[Step]:
        revisions: list[int] = []
        yield Step(
            "a secret is saved",
            lambda: revisions.append(self._edit("Keys", "The password is thylacine.")),
            _all("password is thylacine"),
        )
        yield Step(
            "it is replaced, and its revision hidden",
            lambda: self._replaced(revisions[0]),
            (*_all("password is thylacine", False), *_all("no potkuruu here")),
        )
        yield Step(
            "a public page includes a restricted one",
            lambda: None,
            (Sees("Eve", "An overview of plans"), Sees("Ann", "numbat plan", False)),
        )

    def _over_a_redirect(self) -> None:
        assert self._server is not None
        self._server.admin.move("Ferries", "Ships")
        self._server.admin.move("Ships", "Ferries")

    def _template(self, text: str) -> None:
        assert self._server is not None
        self._server.admin.edit("Template:Notice", text)
        self._server.run_jobs()

    def _replaced(self, revision: int) -> None:
        assert self._server is not None
        self._edit("Keys", "There is no potkuruu here.")
        self._server.admin.hide(revision)

    def _edit(self, title: str, text: str) -> int:
        assert self._server is not None
        self._ids[title], revision = self._server.admin.edit(title, text)
        return revision

    def _allowed(self, stage: Stage) -> Iterator[Allowed]:
        assert self._server is not None
        titles = [t for t in self._ids if not t.startswith("Template:")]
        for person in PEOPLE:
            session = self._server.user(person)
            may = session.may_read(titles)
            session.close()
            for title in titles:
                for source in (PUSHED, POLLED):
                    ref = DocumentRef(tenant=TENANT, source=source, kind="page", id=str(self._ids[title]))
                    yield Allowed(person, ref, may[title])
