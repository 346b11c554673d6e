"""A world of projects, roles, people, issues and wikis on a real Redmine, and what its server lets each person read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from infra.servers.redmine import RedmineServer
from pipeline.clock import SystemClock
from pipeline.ports import SourceDocument
from pipeline.settings_sources import IdentitySettings, RedmineSettings
from pipeline.sources.redmine import Redmine
from pipeline.sources.remote.contract import Fetched, Listed, Readership
from schemas.access import EVERYONE, AccessRule, Closure
from schemas.keys import DocumentRef

MANAGER, DEVELOPER, REPORTER = 3, 4, 5
PEOPLE = ("ana", "ben", "cleo", "dana", "emil", "fay", "gil", "hana")
# What REST cannot make: roles that see their own issues only, or issues of one tracker, and custom fields.
ROLES = """
read = [:view_issues, :view_wiki_pages]
Role.create!(name: 'Own', issues_visibility: 'own', permissions: read + [:view_private_notes])
bugs = Role.create!(name: 'Bugs', issues_visibility: 'all', permissions: read)
bugs.set_permission_trackers(:view_issues, [1])
bugs.save!
Role.create!(name: 'Pages', issues_visibility: 'all', permissions: [:view_wiki_pages])
manager = Role.find_by_name('Manager')
{'Region' => true, 'Margin' => false}.each do |name, visible|
  IssueCustomField.create!(name: name, field_format: 'string', visible: visible, is_for_all: true,
                           roles: visible ? [] : [manager], tracker_ids: Tracker.pluck(:id))
end
"""


def system(server: RedmineServer, **changes: Any) -> Redmine:
    """The connector's side of a server."""
    given = {
        "type": "redmine",
        "name": "desk",
        "url": server.url,
        "api_key": server.key,
        "requests_per_s": 1000,
        "timeout_s": 30.0,
        "overlap_s": 2.0,
        "identity": IdentitySettings(join="login"),
    }
    settings = RedmineSettings.model_validate(given | changes)
    return Redmine("acme", settings, (), SystemClock(), max_bytes=1_000_000)


@dataclass
class World:
    """Ids of what was made."""

    server: RedmineServer
    users: dict[str, int] = field(default_factory=dict)
    projects: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    issues: list[int] = field(default_factory=list)

    def user(self, login: str, **more: Any) -> int:
        body = {"login": login, "firstname": login, "lastname": "X", "mail": f"{login}@example.org"}
        made = self.server.made("/users.json", {"user": body | {"password": "a-long-password-1"} | more})
        self.users[login] = int(made["id"])
        return self.users[login]

    def project(self, name: str, *, public: bool = False, parent: str | None = None, inherit: bool = False) -> int:
        body: dict[str, Any] = {"name": name, "identifier": name, "is_public": public, "inherit_members": inherit}
        body["enabled_module_names"] = ["issue_tracking", "wiki"]
        if parent:
            body["parent_id"] = self.projects[parent]
        self.projects[name] = int(self.server.made("/projects.json", {"project": body})["id"])
        return self.projects[name]

    def member(self, project: str, who: int, *roles: int) -> int:
        body = {"membership": {"user_id": who, "role_ids": list(roles)}}
        return int(self.server.made(f"/projects/{self.projects[project]}/memberships.json", body)["id"])

    def issue(self, project: str, subject: str, *, user: str | None = None, **more: Any) -> int:
        body = {"issue": {"project_id": self.projects[project], "subject": subject, "tracker_id": 1} | more}
        id_ = int(self.server.made("/issues.json", body, user=user)["id"])
        self.issues.append(id_)
        return id_

    def change(self, issue: int, *, user: str | None = None, **more: Any) -> None:
        self.server.done("PUT", f"/issues/{issue}.json", {"issue": more}, user=user)

    def note(self, issue: int, text: str, *, private: bool = False, user: str | None = None) -> int:
        self.change(issue, user=user, notes=text, private_notes=private)
        return int(self.row(issue)["journals"][-1]["id"])

    def page(self, project: str, title: str, text: str) -> None:
        path = f"/projects/{self.projects[project]}/wiki/{title}.json"
        self.server.done("PUT", path, {"wiki_page": {"text": text}})

    def copies(self, issue: int, subjects: list[str]) -> None:
        """The same issue again under other subjects, faster than by REST."""
        columns = [str(c[1]) for c in self.server.sql("pragma table_info(issues)")]
        kept = ", ".join(c for c in columns if c not in ("id", "subject", "root_id", "lft", "rgt"))
        values = ", ".join("(?)" for _ in subjects)
        self.server.sql(
            f"with names(name) as (values {values}) insert into issues ({kept}, subject, lft, rgt) "
            f"select {kept}, name, 1, 2 from names, issues where id = {issue}",
            *subjects,
        )
        self.server.sql("update issues set root_id = id where root_id is null")

    def row(self, issue: int) -> dict[str, Any]:
        answer = self.server.ask("GET", f"/issues/{issue}.json?include=journals,attachments")
        return dict(answer.json()["issue"])


def built(server: RedmineServer) -> World:
    """Nine accounts, a group, six projects, issues of each kind in all of them, private notes and wiki pages."""
    world = World(server)
    server.ruby(ROLES)
    world.roles = {str(name): int(id_) for id_, name in server.sql("select id, name from roles")}
    for login in PEOPLE:
        world.user(login)
    world.user("boss", admin=True)
    world.groups["team"] = int(server.made("/groups.json", {"group": {"name": "Team"}})["id"])
    for login in ("cleo", "dana"):
        server.done("POST", f"/groups/{world.groups['team']}/users.json", {"user_id": world.users[login]})
    world.project("pay")
    world.project("open", public=True)
    world.project("mixed", public=True)
    world.project("inner", parent="pay", inherit=True)
    world.project("attic")
    world.project("done")
    users = world.users
    world.member("pay", users["ana"], MANAGER)
    world.member("pay", users["ben"], REPORTER)
    world.member("pay", world.groups["team"], DEVELOPER)
    world.member("mixed", users["emil"], REPORTER)
    world.member("mixed", users["fay"], DEVELOPER, MANAGER)
    world.member("pay", users["hana"], world.roles["Own"])
    world.member("mixed", users["hana"], world.roles["Pages"])
    world.member("done", users["hana"], world.roles["Bugs"])
    world.member("done", users["emil"], world.roles["Bugs"], REPORTER)
    world.member("attic", users["ana"], MANAGER)
    world.member("done", users["gil"], DEVELOPER)
    world.member("open", users["ben"], MANAGER)
    for name in world.projects:
        _fill(world, name)
    server.done("PUT", f"/projects/{world.projects['attic']}/archive.json")
    server.done("PUT", f"/projects/{world.projects['done']}/close.json")
    return world


def _fill(world: World, project: str) -> None:
    team, users = world.groups["team"], world.users
    plain = world.issue(project, f"{project}: plain")
    for tracker in (2, 3):
        world.issue(project, f"{project}: of tracker {tracker}", tracker_id=tracker)
        world.issue(project, f"{project}: private of tracker {tracker}", tracker_id=tracker, is_private=True)
    secret = world.issue(project, f"{project}: private", is_private=True)
    for column, who in (("author_id", users["ben"]), ("assigned_to_id", team), ("assigned_to_id", users["hana"])):
        issue = world.issue(project, f"{project}: private, {column} {who}", is_private=True)
        world.server.sql(f"update issues set {column} = ? where id = ?", who, issue)
    for issue in (plain, secret):
        world.note(issue, "seen by all readers")
        world.note(issue, "for few", private=True)
        mine = world.note(issue, "emil's own", private=True)
        world.server.sql("update journals set user_id = ? where id = ?", users["emil"], mine)
    world.page(project, "Start", f"Start of {project}")


# -- what ours says --------------------------------------------------------------------------------------------------


def listed(system: Redmine) -> list[Listed]:
    """A whole listing."""
    found: list[Listed] = []
    at: str | None = None
    while True:
        page = system.listing(at)
        assert not page.problems
        found += page.documents
        at = page.next
        if at is None:
            return found


def fetched(system: Redmine, document: DocumentRef) -> Fetched:
    answer = system.fetch(document)
    assert isinstance(answer, Fetched), (document, answer)
    return answer


def rule(document: SourceDocument) -> AccessRule:
    assert isinstance(document.rule, AccessRule)
    return document.rule


def closure(readers: Readership, person: str) -> Closure:
    """All principals of a person."""
    parents: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for membership in readers.memberships:
        parents[membership.principal] = membership.parents
    start = f"user:{person}"
    if start not in parents:
        return Closure.of_nobody()
    found: set[str] = set()
    todo = [start, EVERYONE]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += parents[one]
    return Closure(principals=frozenset(found))


# -- what the server says --------------------------------------------------------------------------------------------


def truth(server: RedmineServer, login: str, documents: Iterable[SourceDocument]) -> set[DocumentRef]:
    """Which of these documents the server lets somebody read."""
    found: set[DocumentRef] = set()
    notes: dict[str, set[int] | None] = {}
    for one in documents:
        ref = one.document
        if ref.kind == "wiki":
            project, rest = ref.id.split("/", 1)
            path = f"/projects/{project}/wiki/{rest.rpartition('@')[0]}.json"
            if server.ask("GET", path, user=login).status_code == 200:
                found.add(ref)
            continue
        issue = ref.id.removeprefix("issue:").partition("@")[0]
        if issue not in notes:
            answer = server.ask("GET", f"/issues/{issue}.json?include=journals", user=login)
            row = answer.json()["issue"] if answer.status_code == 200 else None
            notes[issue] = None if row is None else {j["id"] for j in row["journals"]}
        seen = notes[issue]
        if seen is not None and (ref.kind == "issue" or int(ref.id.rpartition("/")[2].partition("@")[0]) in seen):
            found.add(ref)
    return found


def differences(server: RedmineServer, ours: Redmine, logins: Iterable[str]) -> tuple[list[str], int]:
    """Every pair of person and document on which we and the server differ; and how many pairs were compared."""
    documents: list[SourceDocument] = []
    for one in listed(ours):
        answer = fetched(ours, one.document)
        documents.append(answer.document)
        documents += [fetched(ours, c.document).document for c in answer.children if c.document.kind == "note"]
    readers = ours.readers()
    wrong: list[str] = []
    pairs = 0
    for login in logins:
        allowed = truth(server, login, documents)
        principals = closure(readers, login)
        for document in documents:
            pairs += 1
            if rule(document).admits(principals, 0) != (document.document in allowed):
                wrong.append(
                    f"{login} {document.title!r} {document.document.id} server: {document.document in allowed}"
                )
    return wrong, pairs
