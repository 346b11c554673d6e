"""Names, pages, the walk, and which file is which document."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.errors import ConfigError
from pipeline.sources.folder import names
from pipeline.sources.folder.identity import Identity
from pipeline.sources.folder.pages import read_page
from pipeline.sources.folder.tree import FileMark, Tree, Unsettled, hidden, is_special
from pipeline.sources.states import Known
from schemas.keys import DocumentRef

any_path = st.binary(min_size=1, max_size=30).filter(lambda b: b"\0" not in b).map(os.fsdecode)


@pytest.mark.requirement("A1", "I12")
@given(any_path, any_path)
def test_audiences_are_injective_and_valid_for_any_bytes(one: str, other: str) -> None:
    from pydantic import TypeAdapter

    from schemas.access import Principal

    check = TypeAdapter(Principal)
    made = {p: (names.audience("wiki", p), names.denied("wiki", p)) for p in (one, other)}
    for pair in made.values():
        assert [check.validate_python(p) for p in pair] == list(pair)
    assert names.denied("wiki", one) != names.audience("wiki", other)
    if one != other:
        assert made[one] != made[other]


@pytest.mark.requirement("A1")
def test_sources_and_folders_cannot_be_confused() -> None:
    with pytest.raises(ValidationError):  # else "a" with "b/c" would be spelt as "a/b" with "c"
        DocumentRef(tenant="t", source="a/b", id="c")
    assert names.audience("w", "x#deny") != names.denied("w", "x")
    assert names.audience("w", "x ") != names.audience("w", "x")
    assert len(names.denied("w", "d/" * 1000)) <= 1024


def test_ids_and_urls() -> None:
    assert names.document_id("a/Café & Co.md") == "a/Café & Co.md"
    assert len(names.document_id("x" * 4000)) <= 2048
    assert names.document_id("x" * 4000) != names.document_id("x" * 4001)
    assert names.readable("caf\udce9.md") == "caf\\xe9.md"
    assert (
        names.url("https://wiki.example/w/", "/r", "a/Café #1?.md") == "https://wiki.example/w/a/Caf%C3%A9%20%231%3F.md"
    )
    assert names.url(None, "/srv/wiki", "a b.md") == "file:///srv/wiki/a%20b.md"
    assert names.folders_of("a/b/c.md") == ["", "a", "a/b"] and names.folders_of("c.md") == [""]


@pytest.mark.requirement("A1", "A2")
@pytest.mark.parametrize(
    ("path", "body", "title", "media"),
    [
        ("a.md", "---\ntitle: Front\n---\n# Head\n", "Front", "text/markdown; charset=utf-8"),
        ("a.md", "intro\n\n# The  head #\ntext", "The head", "text/markdown; charset=utf-8"),
        ("a.md", "```\n# comment\n```\n\nHead\n====\n", "Head", "text/markdown; charset=utf-8"),
        ("a.md", "~~~py\n# c\n~~~\n## Second only\n", "a", "text/markdown; charset=utf-8"),
        ("b/my-page.md", "no heading", "my-page", "text/markdown; charset=utf-8"),
        ("a.html", "<!DOCTYPE html><title> A &amp; B </title>", "A & B", "text/html"),
        ("a.html", "<h1>One <em>two</em></h1>", "One two", "text/html"),
        ("a.txt", "# not a heading", "a", "text/plain; charset=utf-8"),
        ("a.txt", "\n<!doctype HTML><html><h1>X</h1>", "X", "text/html"),
        ("a.md", "%PDF-1.7 ...", "a", "application/pdf"),
        ("a.md", "\ufeff---\r\ntitle: Bom\r\n---\r\nx", "Bom", "text/markdown; charset=utf-8"),
        ("a.md", "---\ntitle: [x]\n---\n# H", "H", "text/markdown; charset=utf-8"),
        ("a.md", "---\ntitle: 2024\n---\n", "2024", "text/markdown; charset=utf-8"),
        ("a.md", "---\n: : :\n---\n# H", "H", "text/markdown; charset=utf-8"),
        ("a.md", "--- not front matter", "a", "text/markdown; charset=utf-8"),
    ],
)
def test_title_and_media_type(path: str, body: str, title: str, media: str) -> None:
    page = read_page(path, body.encode())
    assert (page.title, page.content_type) == (title, media)


@pytest.mark.requirement("F14", "F15")
def test_bytes_of_other_encodings() -> None:
    assert read_page("a.txt", "déjà".encode("latin-1")).content_type == "text/plain"
    assert read_page("a.md", "# Häd".encode("utf-16")).content_type == "text/markdown; charset=utf-16"
    assert read_page("a.md", "# Häd".encode("utf-16")).title == "Häd"
    assert read_page("a.txt", b"\x00\x01\x02").content_type == "application/octet-stream"
    damaged = "<html><head><meta charset=windows-1252><title>Menü</title></head></html>".encode("cp1252")
    assert read_page("carte.html", damaged).title == "carte", "extraction reads it right"
    assert read_page("a.md", b"\xef\xbb\xbf# Marked").title == "Marked"
    assert read_page("a\udce9.txt", b"").title  # never raises, always has a title


@pytest.mark.requirement("A3", "F06")
def test_dates_of_front_matter() -> None:
    page = read_page("a.md", b"---\neffective_from: 2025-01-01\neffective_until: 2025-12-31T12:00:00+02:00\n---\n")
    assert page.effective_from == 1735689600_000_000 and page.effective_until == 1767175200_000_000
    nested = read_page("a.md", b"---\neffective: {from: '2025-01-01'}\nlang: de\nproduct: X-500\n---\n")
    assert (nested.effective_from, nested.language, nested.product) == (page.effective_from, "de", "X-500")
    for bad in (b"effective_from: soon", b"effective_from: 2025-02-30", b"effective_from: 0001-01-01"):
        broken = read_page("a.md", b"---\ntitle: T\n" + bad + b"\n---\n")
        assert broken.title == "T" and broken.effective_from is None and "effective_from" in broken.problems[0]
    day = read_page("a.md", b"---\neffective_from: 2025-12-31\neffective_until: 2025-12-31\n---\n")
    assert (day.effective_from, day.effective_until) == (1767139200_000_000, 1767225600_000_000), "the day itself"
    crossed = read_page("a.md", b"---\neffective_from: 2025-01-02\neffective_until: 2025-01-01\n---\n")
    assert (crossed.effective_from, crossed.effective_until) == (None, None) and crossed.problems


def test_a_title_has_one_line_and_an_end() -> None:
    assert read_page("a.md", b'---\ntitle: "a\\nb\\u0007"\n---\n').title == "a b"
    assert len(read_page("a.md", b"# " + b"x" * 3000).title) == 1000


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "root"
    (root / "a" / ".git").mkdir(parents=True)
    (tmp_path / "outside.md").write_text("secret")
    for name in ("x.md", "a/y.html", "a/z.TXT", "a/.hidden.md", "a/.access.yaml", "a/i.svg", "a/.git/c.md"):
        (root / name).write_text("text")
    (root / "groups.yaml").write_text("text")
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    (root / "inside.md").symlink_to(root / "x.md")
    (root / "up").symlink_to(tmp_path)
    os.mkfifo(root / "pipe.md")
    return Tree(root)


@pytest.mark.requirement("A1", "I12")
def test_the_walk_takes_documents_only(tree: Tree) -> None:
    walked = tree.walk()
    assert sorted(walked.files) == ["a/y.html", "a/z.TXT", "x.md"]
    assert walked.folders == {"", "a"} and walked.complete


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "path", ["link.md", "inside.md", "up/outside.md", "pipe.md", "none.md", "../outside.md", "x.md/y.md"]
)
def test_links_pipes_and_ways_out_are_not_read(tree: Tree, path: str) -> None:
    with pytest.raises(OSError):
        tree.read(path, 100)
    assert tree.mark(path) is None


def test_an_access_file_that_is_a_link_is_an_error_not_absence(tree: Tree, tmp_path: Path) -> None:
    (Path(tree.root) / ".access.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError):
        tree.read_special("", ".access.yaml")
    assert tree.read_special("a", ".access.yaml") == b"text"


@pytest.mark.requirement("F02")
def test_a_root_that_went_away_is_not_an_empty_one(tree: Tree) -> None:
    os.rename(tree.root, tree.root + ".away")
    assert not tree.walk().complete and not tree.same_root()
    os.mkdir(tree.root)
    assert not tree.walk().complete
    assert tree.adopt_root() and tree.walk().complete


def test_a_root_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sources\.path"):
        Tree(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not a folder"):
        Tree(tmp_path / "file")


@pytest.mark.requirement("F02")
def test_a_folder_that_cannot_be_listed_makes_the_walk_incomplete(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def refusing(path: str) -> Any:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    walked = tree.walk()
    assert not walked.complete and walked.unreadable == {"a"} and "x.md" in walked.files


def test_a_file_that_grows_while_it_is_read_is_unsettled(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstat
    calls: list[int] = []

    def growing(fd: int) -> os.stat_result:
        if calls:
            with open(os.path.join(tree.root, "x.md"), "a") as file:
                file.write("more")
        calls.append(fd)
        return real(fd)

    monkeypatch.setattr(os, "fstat", growing)
    with pytest.raises(Unsettled):
        tree.read("x.md", 100)


def test_special_and_hidden_names() -> None:
    assert is_special("a/.access.yaml") and is_special("groups.yaml") and not is_special("a/groups.yaml")
    assert hidden(".git/x.md") and hidden("a/.x.md") and not hidden("a/.access.yaml") and not hidden("a/x.md")


def mark(inode: int, size: int = 5, mtime: int = 1, ctime: int = 1) -> FileMark:
    return FileMark(1, inode, size, mtime, ctime)


class Files:
    """An identity with a tree that is only a table: path -> mark and content."""

    def __init__(self) -> None:
        self.identity = Identity()
        self.files: dict[str, tuple[FileMark, bytes]] = {}
        self.version = 1000

    def look(self) -> dict[str, str]:
        """One whole look; ids by path afterwards."""
        marks = {p: m for p, (m, _) in self.files.items()}
        found = self.identity.match(marks, list(self.identity.paths()), lambda p: digest(self.files[p][1]))
        for id_ in [self.identity.id_at(p) for p in found.vanished]:
            assert id_ is not None
            self.identity.forget(id_)
        for old, new in found.moved:
            assert self.identity.move(old, new)
        for path in [new for _, new in found.moved] + found.changed + found.new:
            m, body = self.files[path]
            self.identity.claim(path, digest(body), self.next)
            self.identity.saw(path, m, digest(body))
        return {p: self.identity.id_at(p) or "" for p in self.files}

    def next(self) -> int:
        self.version += 1
        return self.version


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


@pytest.mark.requirement("A4", "F08")
def test_a_renamed_file_keeps_its_id() -> None:
    files = Files()
    files.files = {"a.md": (mark(1), b"text1")}
    assert files.look() == {"a.md": "a.md"}
    files.files = {"b/c.md": (mark(1, ctime=2), b"text1")}
    assert files.look() == {"b/c.md": "a.md"}
    files.files = {"b/d.md": (mark(9, mtime=7, ctime=9), b"text1")}  # copied and removed: content tells
    assert files.look() == {"b/d.md": "a.md"}


@pytest.mark.requirement("F09")
def test_a_copy_is_another_document_and_so_is_the_same_name_elsewhere() -> None:
    files = Files()
    files.files = {"2025/r.txt": (mark(1), b"text1")}
    files.look()
    files.files["2026/r.txt"] = (mark(2), b"text1")
    assert files.look() == {"2025/r.txt": "2025/r.txt", "2026/r.txt": "2026/r.txt"}


@pytest.mark.requirement("F02", "F09")
@pytest.mark.parametrize("copied_first", [True, False])
def test_a_rename_by_copy_and_deletion_leaves_one_document_in_either_order(copied_first: bool) -> None:
    files = Files()
    files.files = {"a.md": (mark(1), b"text1")}
    files.look()
    copy = (mark(2, mtime=5), b"text1")
    files.files = files.files | {"b.md": copy} if copied_first else {}
    assert len(files.look()) == (2 if copied_first else 0)
    files.files = {"b.md": copy}
    assert files.look() == {"b.md": "b.md"} and len(files.identity) == 1


def test_a_reused_inode_is_not_a_rename() -> None:
    files = Files()
    files.files = {"a.md": (mark(1, mtime=1), b"text1")}
    files.look()
    files.files = {"b.md": (mark(1, mtime=8), b"other")}
    assert files.look() == {"b.md": "b.md"}


def test_a_path_used_again_gives_a_new_id_unless_the_same_content_is_back() -> None:
    files = Files()
    files.files = {"a.md": (mark(1), b"text1")}
    files.look()
    files.files = {}
    files.look()
    files.files = {"a.md": (mark(2, mtime=2), b"text1")}
    assert files.look() == {"a.md": "a.md"}  # a restore
    files.files = {}
    files.look()
    files.files = {"a.md": (mark(3, mtime=3), b"other")}
    (second,) = files.look().values()
    assert second.startswith("a.md~") and second != "a.md"
    files.files = {"b.md": (mark(3, mtime=3, ctime=4), b"other")}
    assert files.look() == {"b.md": second}  # moved away: the path is free
    files.files["a.md"] = (mark(4, mtime=9), b"third")
    third = files.look()
    assert third["b.md"] == second and third["a.md"].startswith("a.md~") and third["a.md"] != second


def test_an_overwriting_rename_ends_the_file_that_moved() -> None:
    files = Files()
    files.files = {"a.md": (mark(1), b"text1"), "b.md": (mark(2), b"text2")}
    files.look()
    files.files = {"a.md": (mark(2, ctime=3), b"text2")}
    assert files.look() == {"a.md": "a.md"} and len(files.identity) == 1


def test_identities_survive_a_restart() -> None:
    one = Identity()
    document = DocumentRef(tenant="t", source="s", id="first.md")
    state = Known(path="now.md", revision=mark(1).encode(), content_hash=digest(b"x"))
    deleted = Known(path="old.md", deleted=True, content_hash=digest(b"y"))
    one.restore([(document, state), (DocumentRef(tenant="t", source="s", id="old.md"), deleted)])
    assert one.id_at("now.md") == "first.md"
    unchanged = one.match({"now.md": mark(1)}, ["now.md"], lambda p: None)
    assert (unchanged.changed, unchanged.new, unchanged.vanished) == ([], [], [])
    assert one.claim("first.md", digest(b"z"), lambda: 36**3) == "first.md~1000"
    assert one.claim("old.md", digest(b"y"), lambda: 5) == "old.md"


@given(st.text(max_size=40))
def test_marks_that_are_none(text: str) -> None:
    decoded = FileMark.decode(text)
    assert decoded is None or FileMark.decode(decoded.encode()) == decoded
