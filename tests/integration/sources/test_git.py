"""A Git repository as the program git gives it: the life of a document, of a group, of a right, and what goes wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.clock import Clock, SystemClock
from pipeline.errors import ConfigError
from pipeline.settings_sources import GitSettings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.git.system import EMPTY, GitRepository
from pipeline.sources.remote.contract import Absent, Changes, Fetched, Listed, Unreadable
from pipeline.sources.remote.source import Rhythm
from schemas.access import AccessRule, Closure
from schemas.keys import DocumentRef
from tests.integration.sources.owned import OwnedSystem

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the program git is not installed")

GROUPS = "users: [ann, bob]\ngroups: {eng: [ann]}\n"
LONG = "".join(f"line {n} of a page that is long enough to be known again\n" for n in range(20))


class Repository:
    """A repository with a working copy, as people keep theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.at = 1_780_000_000
        self.git("init", "-q", "-b", "main")

    def git(self, *args: str | bytes) -> str:
        env = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@example.org",
            "GIT_COMMITTER_DATE": f"{self.at} +0530",
            "GIT_AUTHOR_DATE": f"{self.at} +0530",
        }
        done = subprocess.run(["git", *args], cwd=self.folder, env=env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def commit(self, message: str = "change", **more: Any) -> str:
        self.at += 60
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, *more.get("options", ()))
        return self.git("rev-parse", "HEAD")

    def write(self, path: str | bytes, text: str | bytes) -> None:
        file = os.path.join(os.fsencode(self.folder), os.fsencode(path))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as stream:
            stream.write(text.encode() if isinstance(text, str) else text)

    def put(self, **files: str) -> str:
        """Write and commit; ``__`` stands for a slash and every file is a page."""
        for name, text in files.items():
            self.write(f"{name.replace('__', '/')}.md", text)
        return self.commit()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "wiki")
    made.write("groups.yaml", GROUPS)
    made.write(".access.yaml", "allow: [everyone]\n")
    made.put(a=f"# Lungfish\n{LONG}", docs__b=f"# Ibis\n{LONG[::-1]}")
    return made


class Follower:
    """What an owner would do: follow from a cursor, and remember what stands."""

    def __init__(self, system: GitRepository) -> None:
        self.system = system
        self.cursor = system.start()
        self.known = {one.document.id: one.revision for one in listed(system)}
        system.committed(self.cursor)

    def look(self) -> Changes:
        changes = self.system.changes(self.cursor)
        if changes.relist:
            self.known = {one.document.id: one.revision for one in listed(self.system)}
        for one in changes.touched:
            self.known[one.document.id] = one.revision
        for gone in changes.gone:
            del self.known[gone.id]
        self.cursor = changes.cursor
        self.system.committed(changes.cursor)
        assert self.known == {one.document.id: one.revision for one in listed(self.system)}
        return changes

    def paths(self) -> dict[str, str]:
        """Ids by path."""
        return {fetched(self.system, id_).document.path or "": id_ for id_ in self.known}


def system_of(repository: Repository | str, cache: Path, **more: Any) -> GitRepository:
    address = repository if isinstance(repository, str) else str(repository.folder)
    settings = GitSettings.model_validate(
        {"type": "git", "name": "wiki", "url": address, "url_base": "https://git.example/wiki/main"} | more
    )
    return GitRepository(settings, SystemClock(), max_bytes=100_000, cache=cache)


@pytest.fixture
def follower(repository: Repository, tmp_path: Path) -> Follower:
    return Follower(system_of(repository, tmp_path / "cache"))


def listed(system: GitRepository) -> Iterator[Listed]:
    at: str | None = None
    while True:
        page = system.listing(at)
        assert not page.problems
        yield from page.documents
        if page.next is None:
            return
        at = page.next


def ref(id_: str) -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", kind="page", id=id_)


def fetched(system: GitRepository, id_: str) -> Fetched:
    answer = system.fetch(ref(id_))
    assert isinstance(answer, Fetched), answer
    return answer


def may_read(system: GitRepository, user: str, id_: str) -> bool:
    """What the query service would say."""
    parents = {one.principal: one.parents for one in system.readers().memberships}
    if f"user:{user}" not in parents:
        return False
    seen, todo = {"everyone"}, [f"user:{user}", "everyone"]
    while todo:
        one = todo.pop()
        seen.add(one)
        todo += [p for p in parents[one] if p not in seen]
    rule = fetched(system, id_).document.rule
    assert isinstance(rule, AccessRule)
    return rule.admits(Closure(principals=frozenset(seen)), 0)


@pytest.mark.requirement("A1", "F01", "F03")
def test_the_life_of_a_document(repository: Repository, follower: Follower) -> None:
    system = follower.system
    assert follower.look().touched == () and len(follower.known) == 2
    commit = repository.put(c="# Newt\n\nsmall")
    looked = follower.look()
    id_ = f"c.md@{commit[:12]}"
    assert [t.document.id for t in looked.touched] == [id_] and looked.cursor == commit and not looked.access
    document = fetched(system, id_).document
    assert (document.title, document.body, document.path) == ("Newt", b"# Newt\n\nsmall", "c.md")
    assert document.url == "https://git.example/wiki/main/c.md"
    assert document.updated_at == repository.at * 1_000_000  # a commit's time has a zone of its own
    assert document.revision == follower.known[id_]

    repository.put(c="# Newt\n\nsmall and red")
    assert [t.document.id for t in follower.look().touched] == [id_]
    assert fetched(system, id_).document.body.endswith(b"red")

    repository.git("rm", "-q", "c.md")
    repository.commit()
    looked = follower.look()
    assert [g.id for g in looked.gone] == [id_] and looked.touched == ()
    assert isinstance(system.fetch(ref(id_)), Absent)

    again = repository.put(c="# Newt\n\nsmall")  # the same path is another document
    assert [t.document.id for t in follower.look().touched] == [f"c.md@{again[:12]}"]
    assert isinstance(system.fetch(ref(id_)), Absent)


@pytest.mark.requirement("F08", "A1")
def test_renames_keep_the_document(repository: Repository, follower: Follower) -> None:
    id_ = follower.paths()["a.md"]
    repository.git("mv", "a.md", "A.md")  # differs by case only
    repository.commit()
    looked = follower.look()
    assert looked.gone == () and [t.document.id for t in looked.touched] == [id_]
    assert fetched(follower.system, id_).document.path == "A.md"
    os.makedirs(repository.folder / "new place")
    repository.git("mv", "A.md", "new place/z.md")
    repository.write("new place/z.md", f"# Lungfish of old\n{LONG}")  # renamed and edited at once
    repository.commit()
    looked = follower.look()
    assert looked.gone == () and looked.access  # a folder more
    document = fetched(follower.system, id_).document
    assert (document.title, document.url) == ("Lungfish of old", "https://git.example/wiki/main/new%20place/z.md")


@pytest.mark.requirement("F08", "I6")
def test_a_folder_of_300_files_is_renamed(repository: Repository, follower: Follower) -> None:
    for n in range(300):
        repository.write(f"docs/many/p{n}.md", f"# Page {n}\n{LONG}{n}")
    repository.commit()
    follower.look()
    before = follower.paths()
    repository.git("mv", "docs/many", "docs/moved")
    repository.commit()
    looked = follower.look()
    assert looked.gone == () and len(looked.touched) == 300 and looked.access
    after = follower.paths()
    assert all(after[f"docs/moved/p{n}.md"] == before[f"docs/many/p{n}.md"] for n in range(300))


@pytest.mark.requirement("A8", "I4", "F26")
def test_the_life_of_a_right(repository: Repository, follower: Follower) -> None:
    system, id_ = follower.system, follower.paths()["docs/b.md"]
    assert may_read(system, "ann", id_) and may_read(system, "bob", id_) and not may_read(system, "eve", id_)
    repository.write("docs/.access.yaml", "allow: [group:eng]\n")
    repository.write("docs/secret.md", "# Secret\n")
    repository.commit()  # the right and what it is about, in one commit
    looked = follower.look()
    assert looked.access and [t.document.id.split("@")[0] for t in looked.touched] == ["docs/secret.md"]
    assert may_read(system, "ann", id_) and not may_read(system, "bob", id_)
    assert not may_read(system, "bob", looked.touched[0].document.id)

    repository.write("docs/.access.yaml", "allow: [user:bob]\n")  # the right moves from one to the other
    repository.commit()
    looked = follower.look()
    assert looked.access and looked.touched == ()
    assert not may_read(system, "ann", id_) and may_read(system, "bob", id_)

    repository.write("docs/.access.yaml", "allow: everybody\n")
    repository.commit()
    follower.look()
    assert not may_read(system, "ann", id_) and not may_read(system, "bob", id_)
    assert "docs/.access.yaml" in system.readers().alarms[0]

    repository.git("rm", "-q", "docs/.access.yaml")
    repository.commit()
    assert follower.look().access and may_read(system, "bob", id_)


@pytest.mark.requirement("A8", "I12")
def test_the_life_of_a_group(repository: Repository, follower: Follower) -> None:
    system, id_ = follower.system, follower.paths()["docs/b.md"]
    repository.write("docs/.access.yaml", "allow: [group:eng]\n")
    repository.commit()
    follower.look()
    repository.write("groups.yaml", "users: [ann, bob]\ngroups: {eng: [bob]}\n")
    repository.commit()
    assert follower.look().access
    assert may_read(system, "bob", id_) and not may_read(system, "ann", id_)
    repository.git("rm", "-q", "groups.yaml")
    repository.commit()
    assert follower.look().access and not may_read(system, "bob", id_) and system.readers().alarms
    os.symlink("/etc/hostname", repository.folder / "groups.yaml")
    repository.commit()
    assert follower.look().access and "not a regular file" in system.readers().alarms[0]


@pytest.mark.requirement("I12")
def test_an_access_file_that_is_a_link_closes_its_folder(repository: Repository, follower: Follower) -> None:
    os.symlink("../.access.yaml", repository.folder / "docs/.access.yaml")
    repository.commit()
    follower.look()
    assert not may_read(follower.system, "ann", follower.paths()["docs/b.md"])
    assert "not a regular file" in follower.system.readers().alarms[0]


@pytest.mark.requirement("A1", "F07")
def test_odd_names_links_and_hidden_files(repository: Repository, follower: Follower) -> None:
    names = ["q\"uo'te.md", "tab\there.md", "new\nline.md", "Café.md", "Cafe\u0301.md", "-dash.md", "\x02.md", "#?%.md"]
    for name in names:
        repository.write(f"odd/{name}", f"# {len(name)}\n")
    repository.write(b"odd/latin-\xe9.md", "# Latin\n")
    repository.write(".hidden/x.md", "no")
    repository.write("odd/picture.svg", b"\x89PNG")
    os.symlink("/etc/hostname", repository.folder / "odd/link.md")
    repository.commit()
    looked = follower.look()
    assert len(looked.touched) == len(names) + 1 and len({t.document.id for t in looked.touched}) == len(names) + 1
    paths = {fetched(follower.system, t.document.id).document.path for t in looked.touched}
    assert paths == {f"odd/{n}" for n in names} | {"odd/latin-\\xe9.md"}


@pytest.mark.requirement("F22", "I8", "F06")
def test_bodies_that_are_too_large_binary_or_elsewhere(repository: Repository, follower: Follower) -> None:
    repository.write("large.md", b"x" * 100_000_0)
    repository.write("binary.md", b"\0\1\2" * 100)
    repository.write("lfs.md", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    repository.write("latin.md", "déjà".encode("latin-1"))
    repository.commit()
    follower.look()
    ids = {id_.split("@")[0]: id_ for id_ in follower.known}
    assert len(fetched(follower.system, ids["large.md"]).document.body) == 100_001  # enough to be refused
    assert fetched(follower.system, ids["binary.md"]).document.content_type == "application/octet-stream"
    assert fetched(follower.system, ids["latin.md"]).document.content_type == "text/markdown"
    answer = follower.system.fetch(ref(ids["lfs.md"]))
    assert isinstance(answer, Unreadable) and "LFS" in answer.reason
    assert any("lfs.md" in p for p in follower.system.readers().problems)


@pytest.mark.requirement("F06")
def test_a_submodule_is_told_and_proves_nothing_else(
    repository: Repository, tmp_path: Path, follower: Follower
) -> None:
    other = Repository(tmp_path / "other")
    other.put(x="# X")
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.folder), "vendor/other")
    repository.commit()
    follower.look()
    assert len(follower.known) == 2 and "vendor/other" in follower.system.readers().problems[0]


@pytest.mark.requirement("A1", "F08")
def test_merges_and_a_merge_the_wrong_way_round(repository: Repository, tmp_path: Path, follower: Follower) -> None:
    """What is made on a branch keeps the commit that made it, before and after it is merged, whoever merges whom."""
    repository.git("checkout", "-q", "-b", "side")
    made = repository.put(side=f"# Side\n{LONG}")
    repository.git("mv", "side.md", "renamed.md")
    repository.commit()
    repository.git("checkout", "-q", "main")
    repository.put(c="# C")
    follower.look()
    repository.git("merge", "-q", "--no-edit", "side")
    looked = follower.look()
    assert [t.document.id for t in looked.touched] == [f"side.md@{made[:12]}"] and looked.gone == ()

    base = repository.git("rev-parse", "HEAD")
    repository.git("mv", "c.md", "d.md")
    theirs = repository.put(theirs="# Theirs")
    follower.look()
    repository.git("checkout", "-q", "-B", "clone", base)  # somebody who had not pulled
    repository.put(mine="# Mine")
    repository.git("merge", "-q", "--no-edit", "main")
    repository.git("checkout", "-q", "-B", "main", "clone")
    looked = follower.look()
    assert [t.document.id.split("@")[0] for t in looked.touched] == ["mine.md"] and looked.gone == ()
    assert f"theirs.md@{theirs[:12]}" in follower.known and follower.paths()["d.md"].startswith("c.md@")
    fresh = Follower(system_of(repository, tmp_path / "another"))  # the answer depends on the commit alone
    assert fresh.known == follower.known


@pytest.mark.requirement("I9", "A6")
def test_a_restart_goes_on_where_it_was(repository: Repository, tmp_path: Path, follower: Follower) -> None:
    repository.git("mv", "a.md", "z.md")
    repository.commit()
    follower.look()
    known, cursor = dict(follower.known), follower.cursor
    repository.put(late="# Late")
    after = system_of(repository, tmp_path / "cache")
    looked = after.changes(cursor)
    assert [t.document.id.split("@")[0] for t in looked.touched] == ["late.md"] and not looked.relist
    again = after.changes(cursor)  # the answer was lost: the same question once more
    assert again == looked
    (tmp_path / "cache" / "acme.wiki.json").write_text("{broken")
    third = system_of(repository, tmp_path / "cache")
    assert third.changes(cursor) == looked
    assert {o.document.id for o in listed(third)} == {*known, looked.touched[0].document.id}


@pytest.mark.requirement("F01", "I9")
def test_a_rewritten_history_is_listed_anew(repository: Repository, follower: Follower) -> None:
    repository.put(secret="# Secret")
    follower.look()
    repository.git("rm", "-q", "secret.md")
    repository.put(public="# Public")
    repository.git("reset", "-q", "--soft", "HEAD~2")
    repository.commit("as if it never was")
    looked = follower.look()
    assert looked.relist and looked.access
    assert {i.split("@")[0] for i in follower.known} == {"a.md", "docs/b.md", "public.md"}
    for cursor in ("", "0" * 40, "main", "--all", EMPTY):
        assert follower.system.changes(cursor).relist


@pytest.mark.requirement("F03")
def test_a_listing_is_of_one_commit_and_goes_on_after_a_restart(repository: Repository, tmp_path: Path) -> None:
    for n in range(1100):
        repository.write(f"m/{n:04}.md", f"# {n}\n")
    repository.commit()
    system = system_of(repository, tmp_path / "cache")
    first = system.listing(None)
    assert len(first.documents) == 1000 and first.total == 1102 and first.next is not None
    repository.git("mv", "m/1099.md", "0.md")  # from the page to come to the page that was
    repository.commit()
    restarted = system_of(repository, tmp_path / "cache")
    second = restarted.listing(first.next)
    ids = {o.document.id.split("@")[0] for o in (*first.documents, *second.documents)}
    assert "m/1099.md" in ids and len(ids) == 1102 and second.next is None
    assert restarted.listing(f"{'0' * 40}:1000").problems  # what cannot be continued proves no absence


@pytest.mark.requirement("I8", "F02")
def test_a_repository_that_is_away_deletes_nothing(repository: Repository, follower: Follower, tmp_path: Path) -> None:
    away = tmp_path / "away"
    repository.folder.rename(away)
    for ask in (lambda: follower.system.changes(follower.cursor), lambda: follower.system.listing(None)):
        with pytest.raises(SourceUnavailable):
            ask()
    assert follower.system.reach.failures == 2
    fetched(follower.system, next(iter(follower.known)))  # what was read is still known
    away.rename(repository.folder)
    assert follower.look().gone == ()
    repository.git("branch", "-m", "main", "trunk")
    with pytest.raises(SourceUnavailable, match="branch main is gone"):
        follower.look()


@pytest.mark.requirement("A1")
def test_an_empty_repository_and_a_branch_that_is_none(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "wiki")
    system = system_of(repository, tmp_path / "cache")
    cursor = system.start()
    assert cursor == EMPTY and list(listed(system)) == [] and system.changes(cursor) == Changes(EMPTY)
    assert "groups.yaml is missing" in system.readers().alarms[0]
    repository.put(a="# A")
    assert system.changes(cursor).relist and len(list(listed(system))) == 1
    with pytest.raises(ConfigError, match=r"sources\.branch.*'dev'.*main"):
        system_of(repository, tmp_path / "b", branch="dev").start()


@pytest.mark.requirement("A1")
def test_a_history_that_is_cut_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.put(a="# Again")
    shallow = tmp_path / "shallow"
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.folder}", str(shallow))
    with pytest.raises(ConfigError, match="shallow"):
        system_of(str(shallow), tmp_path / "cache").start()
    place = tmp_path / "place"
    place.symlink_to(repository.folder)
    follower = Follower(system_of(str(place), tmp_path / "other"))
    repository.put(a="# Later")
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.folder}", str(tmp_path / "cut"))
    place.unlink()
    place.symlink_to(tmp_path / "cut")
    with pytest.raises(SourceUnavailable, match="unshallow"):  # said, not passed over in silence
        follower.look()


@pytest.mark.requirement("A1", "A8")
def test_one_folder_over_a_file_address(repository: Repository, tmp_path: Path) -> None:
    repository.write("docs/groups.yaml", GROUPS)
    repository.write("docs/inner/c.md", "# C")
    repository.commit()
    system = system_of(f"file://{repository.folder}", tmp_path / "cache", path="/docs/")
    follower = Follower(system)
    assert set(follower.paths()) == {"b.md", "inner/c.md"}
    assert may_read(system, "ann", follower.paths()["inner/c.md"])
    repository.put(a="# outside")
    looked = follower.look()
    assert looked.touched == () and looked.gone == () and not looked.access


@pytest.mark.requirement("I12")
def test_neither_hooks_nor_the_accounts_settings_nor_our_environment_lead_astray(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "post-merge", "pre-auto-gc"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f"[core]\nhooksPath = {hooks}\nquotePath = true\n[diff]\nrenames = false\nexternal = touch {ran}\n"
        f"[log]\nshowSignature = true\nshowRoot = false\n[alias]\nlog = !touch {ran}\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(settings.read_text())
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    system = system_of(repository, tmp_path / "cache")
    assert len(list(listed(system))) == 2 and not ran.exists() and not (tmp_path / "nowhere").exists()


@pytest.mark.requirement("I8")
def test_a_program_that_hangs_is_ended(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "ssh").write_text("#!/bin/sh\nsleep 100\n")
    (slow / "ssh").chmod(0o755)
    monkeypatch.setenv("GIT_SSH", str(slow / "ssh"))
    system = system_of("ssh://host.example/wiki", tmp_path / "cache", timeout_s=0.5)
    with pytest.raises(SourceUnavailable, match=r"longer than 0\.5 s"):
        system.start()


@pytest.mark.requirement("A1")
def test_check_says_what_is_wrong_and_what_to_do(repository: Repository, tmp_path: Path) -> None:
    good = system_of(repository, tmp_path / "cache").check()
    assert all(f.good for f in good) and any("has 2 pages" in f.what for f in good)
    assert not (tmp_path / "cache").exists()  # a check leaves the owner's mirror alone
    bad = system_of(repository, tmp_path / "cache", branch="dev").check()
    assert any(not f.good and "main" in (f.remedy or "") for f in bad)
    away = system_of("file://user:secret@/nowhere", tmp_path / "cache").check()
    assert any(not f.good for f in away) and "secret" not in str(away)
    repository.write("docs/.access.yaml", "deny: []\n")
    repository.commit()
    broken = system_of(repository, tmp_path / "cache", url_base=None).check()
    assert next(f.what for f in broken if not f.good).startswith("nobody may read: docs/.access.yaml")


@pytest.mark.requirement("A1", "A8", "F01", "F08", "I9")
def test_an_owner_of_a_repository(repository: Repository, tmp_path: Path) -> None:
    """What reaches the log: documents, renames, rights, deletions, and the same after a restart."""
    repository.write("docs/.access.yaml", "allow: [group:eng]\n")
    repository.commit()

    def make(clock: Clock) -> GitRepository:
        settings = GitSettings(type="git", name="wiki", url=str(repository.folder))
        return GitRepository(settings, clock, max_bytes=100_000, cache=tmp_path / "cache")

    owned = OwnedSystem(make, "wiki", Rhythm(10.0, 60.0, 86_400.0), walk_s=3600.0)
    owned.start()
    ids = {event.path: id_ for id_, event in owned.live().items()}
    assert set(ids) == {"a.md", "docs/b.md"}
    assert owned.may_read("ann", ids["docs/b.md"]) and not owned.may_read("bob", ids["docs/b.md"])

    repository.git("mv", "docs/b.md", "docs/renamed.md")
    repository.write("docs/.access.yaml", "allow: [user:bob]\n")
    repository.git("rm", "-q", "a.md")
    repository.commit()
    owned.look(11.0)
    assert {i: e.path for i, e in owned.live().items()} == {ids["docs/b.md"]: "docs/renamed.md"}
    assert owned.may_read("bob", ids["docs/b.md"]) and not owned.may_read("ann", ids["docs/b.md"])
    events = owned.log.events()

    owned.engine.close()
    owned.start()
    owned.look(20.0)
    assert owned.log.events() == events  # nothing happened, nothing is said
    repository.put(c="# C")
    owned.look(11.0)
    assert {e.path for e in owned.live().values()} == {"docs/renamed.md", "c.md"}

    repository.git("reset", "-q", "--hard", "HEAD~1")  # forced back
    owned.look(30.0)
    assert {e.path for e in owned.live().values()} == {"docs/renamed.md"}
    owned.engine.close()
