"""Tickets and wiki pages of a Redmine with a public, a private and an inherited project; it cannot push."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from infra.servers.redmine import RedmineServer, available
from infra.sources_check.play import TENANT, Allowed, Play, Sees, Step
from infra.sources_check.play import all_see as _of
from infra.sources_check.stage import Stage
from schemas.keys import DocumentRef

PEOPLE = ("mia", "dev", "rep", "out", "own")  # manager, developer, reporter, no member, reporter who writes issues
SOURCE = "tickets"
MANAGER, DEVELOPER, REPORTER = 3, 4, 5
PASSWORD = "headwater-user-password"


class RedmineSystem:
    """See the module."""

    name = "redmine"

    def __init__(self) -> None:
        self._server: RedmineServer | None = None
        self._users: dict[str, int] = {}
        self._projects: dict[str, int] = {}
        self._issues: dict[str, dict[str, Any]] = {}
        self._members: dict[tuple[str, str], int] = {}

    def available(self) -> str | None:
        """Whether the package is there."""
        return available()

    def start(self, folder: Path) -> Play:
        """Make, serve, seed."""
        folder.mkdir(parents=True, exist_ok=True)
        server = self._server = RedmineServer(folder)
        server.start()
        for login in PEOPLE:
            user = {"login": login, "firstname": login, "lastname": "Doe", "mail": f"{login}@acme.example"}
            self._users[login] = int(server.made("/users.json", {"user": user | {"password": PASSWORD}})["id"])
        self._project("payments", public=False)
        self._project("handbook", public=True)
        self._project("cards", public=False, parent="payments", inherit=True)
        for login, role in (("mia", MANAGER), ("dev", DEVELOPER), ("rep", REPORTER), ("own", REPORTER)):
            self._member("payments", login, role)
        self._issue("payments", "Refunds", "The kakapo refund takes three days.")
        self._issue("payments", "Fraud", "The takahe fraud case is confidential.", is_private=True)
        self._issue("payments", "Mine", "The weka case was opened by its owner.", by="own", is_private=True)
        self._issue("handbook", "Welcome", "The morepork handbook is for everybody.")
        self._issue("cards", "Chips", "The kereru chip fails below zero.")
        server.done("PUT", "/projects/payments/wiki/Start.json", {"wiki_page": {"text": "The tieke wiki begins here."}})
        begins = (
            Sees("rep", "kakapo refund"),
            Sees("out", "kakapo refund", False),
            Sees("mia", "takahe fraud"),
            Sees("rep", "takahe fraud", False),
            Sees("own", "weka case"),
            Sees("dev", "weka case", False),
            Sees("out", "morepork handbook"),
            Sees("dev", "kereru chip"),
            Sees("out", "kereru chip", False),
            Sees("dev", "tieke wiki"),
            Sees("out", "tieke wiki", False),
        )
        return Play(
            self.name, {SOURCE: "poll"}, self._steps, self._allowed, begins=begins, settings=[self._source(server)]
        )

    def ready(self, stage: Stage) -> None:
        """Nothing waits for the product."""

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()

    def _source(self, server: RedmineServer) -> dict[str, object]:
        return {
            "name": SOURCE,
            "tenant": TENANT,
            "type": "redmine",
            "url": server.url,
            "api_key": server.key,
            "poll_s": 1.0,
            "access_s": 1.0,
            "sweep_s": 8.0,
            "walk_s": 6.0,
            "requests_per_s": 200.0,
            "identity": {"join": "login"},
        }

    # ------------------------------------------------------------ what is played

    def _steps(self, stage: Stage) -> Iterator[Step]:
        assert self._server is not None
        server = self._server
        members = ("mia", "dev", "rep")
        yield Step(
            "an issue is made",
            lambda: self._issue("payments", "Ledger", "The pukeko ledger is off by one."),
            (*_of(members, "pukeko ledger"), Sees("out", "pukeko ledger", False)),
        )
        yield Step(
            "it is edited",
            lambda: self._put("Ledger", description="The pukeko ledger is settled, says the hoiho."),
            (*_of(members, "says the hoiho"), *_of(members, "off by one", False)),
        )
        yield Step("a note is added", lambda: self._put("Ledger", notes="A korora note."), _of(members, "korora note"))
        yield Step(
            "a private note is added",
            lambda: self._put("Ledger", notes="A whio note in private.", private_notes=True),
            (*_of(("mia", "dev"), "whio note"), Sees("rep", "whio note", False)),
        )
        yield Step(
            "a note becomes private",
            lambda: self._note_private("Ledger", "A korora note."),
            (Sees("mia", "korora note"), Sees("rep", "korora note", False)),
            slow=True,
        )
        yield Step(
            "a file is attached",
            lambda: self._attach("Ledger", "rota.txt", b"The kea rota begins on Monday."),
            (*_of(members, "kea rota"), Sees("out", "kea rota", False)),
        )
        yield Step(
            "the issue becomes private",
            lambda: self._put("Ledger", is_private=True),
            (Sees("mia", "says the hoiho"), Sees("rep", "says the hoiho", False), Sees("rep", "kea rota", False)),
        )
        yield Step("and public again", lambda: self._put("Ledger", is_private=False), _of(members, "says the hoiho"))
        yield Step(
            "it moves to a public project",
            lambda: self._put("Ledger", project_id=self._projects["handbook"]),
            (Sees("out", "says the hoiho"), Sees("out", "kea rota"), Sees("out", "whio note", False)),
        )
        yield Step(
            "it moves back",
            lambda: self._put("Ledger", project_id=self._projects["payments"]),
            (Sees("out", "says the hoiho", False), Sees("dev", "says the hoiho")),
        )
        yield Step("its file is deleted", lambda: self._detach("Ledger"), _of(members, "kea rota", False), slow=True)
        yield Step(
            "somebody becomes a member",
            lambda: self._member("payments", "out", REPORTER),
            (Sees("out", "kakapo refund"), Sees("out", "takahe fraud", False), Sees("out", "kereru chip")),
        )
        yield Step(
            "and is one no longer",
            lambda: self._leave("payments", "out"),
            (Sees("out", "kakapo refund", False), Sees("out", "kereru chip", False)),
        )
        yield Step(
            "an account is locked",
            lambda: server.done("PUT", f"/users/{self._users['dev']}.json", {"user": {"status": 3}}),
            (Sees("dev", "kakapo refund", False), Sees("dev", "morepork handbook", False)),
        )
        yield Step(
            "and unlocked",
            lambda: server.done("PUT", f"/users/{self._users['dev']}.json", {"user": {"status": 1}}),
            (Sees("dev", "kakapo refund"), Sees("dev", "morepork handbook")),
        )
        yield Step(
            "a public project becomes private",
            lambda: server.done("PUT", "/projects/handbook.json", {"project": {"is_public": False}}),
            (Sees("out", "morepork handbook", False), Sees("mia", "morepork handbook", False)),
        )
        yield Step(
            "and public again",
            lambda: server.done("PUT", "/projects/handbook.json", {"project": {"is_public": True}}),
            (Sees("out", "morepork handbook"),),
        )
        yield Step(
            "a wiki page is edited",
            lambda: server.done(
                "PUT", "/projects/payments/wiki/Start.json", {"wiki_page": {"text": "The rifleman wiki goes on."}}
            ),
            (Sees("dev", "rifleman wiki"), Sees("dev", "tieke wiki", False)),
        )
        yield Step(
            "it is deleted",
            lambda: server.done("DELETE", "/projects/payments/wiki/Start.json"),
            (Sees("dev", "rifleman wiki", False),),
            slow=True,
        )
        yield Step(
            "the issue is deleted", lambda: self._delete("Ledger"), _of(members, "says the hoiho", False), slow=True
        )
        yield Step(
            "an issue gets the id of the deleted one",
            lambda: self._issue("payments", "Again", "The kokako issue is another one."),
            (*_of(members, "kokako issue"), *_of(members, "says the hoiho", False)),
        )

    def _allowed(self, stage: Stage) -> Iterator[Allowed]:
        assert self._server is not None
        for person in PEOPLE:
            answer = self._server.ask("GET", "/issues.json?status_id=*&limit=100", user=person).json()
            seen = {int(issue["id"]) for issue in answer["issues"]}
            for issue in self._issues.values():
                at = int(datetime.fromisoformat(issue["created_on"]).timestamp())
                ref = DocumentRef(tenant=TENANT, source=SOURCE, kind="issue", id=f"{issue['id']}@{at}")
                yield Allowed(person, ref, int(issue["id"]) in seen)

    # ------------------------------------------------------------ doing it

    def _project(self, name: str, *, public: bool, parent: str | None = None, inherit: bool = False) -> None:
        assert self._server is not None
        body: dict[str, Any] = {"name": name, "identifier": name, "is_public": public, "inherit_members": inherit}
        body["enabled_module_names"] = ["issue_tracking", "wiki"]
        if parent is not None:
            body["parent_id"] = self._projects[parent]
        self._projects[name] = int(self._server.made("/projects.json", {"project": body})["id"])

    def _member(self, project: str, login: str, role: int) -> None:
        assert self._server is not None
        body = {"membership": {"user_id": self._users[login], "role_ids": [role]}}
        self._members[project, login] = int(self._server.made(f"/projects/{project}/memberships.json", body)["id"])

    def _leave(self, project: str, login: str) -> None:
        assert self._server is not None
        self._server.done("DELETE", f"/memberships/{self._members.pop((project, login))}.json")

    def _issue(self, project: str, subject: str, text: str, *, by: str | None = None, is_private: bool = False) -> None:
        """``by`` somebody who may not make private issues: it is made private afterwards."""
        assert self._server is not None
        body: dict[str, Any] = {"project_id": self._projects[project], "subject": subject, "description": text}
        if by is None:
            body["is_private"] = is_private
        self._issues[subject] = self._server.made("/issues.json", {"issue": body}, user=by)
        if by is not None and is_private:
            self._put(subject, is_private=True)

    def _put(self, subject: str, **fields: Any) -> None:
        assert self._server is not None
        self._server.done("PUT", f"/issues/{self._issues[subject]['id']}.json", {"issue": fields})

    def _note_private(self, subject: str, text: str) -> None:
        """Nothing of the issue moves by that; the API has no word for it in this release."""
        assert self._server is not None
        self._server.sql(
            "update journals set private_notes = 1 where notes = ? and journalized_id = ?",
            text, self._issues[subject]["id"],
        )  # fmt: skip

    def _attach(self, subject: str, name: str, content: bytes) -> None:
        assert self._server is not None
        self._put(subject, uploads=[self._server.upload(name, content, "text/plain")])

    def _detach(self, subject: str) -> None:
        assert self._server is not None
        path = f"/issues/{self._issues[subject]['id']}.json?include=attachments"
        for one in self._server.ask("GET", path).json()["issue"]["attachments"]:
            self._server.done("DELETE", f"/attachments/{one['id']}.json")

    def _delete(self, subject: str) -> None:
        assert self._server is not None
        self._server.done("DELETE", f"/issues/{self._issues.pop(subject)['id']}.json")
