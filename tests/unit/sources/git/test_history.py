"""Which file is which document: logs as Git writes them, and the tree of a commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.clock import ManualClock
from pipeline.errors import ConfigError
from pipeline.settings_sources import GitSettings
from pipeline.sources.folder.access import FolderAccess
from pipeline.sources.git.history import (
    Commit,
    History,
    Origin,
    Step,
    apply,
    load,
    made_on_the_side,
    parse_log,
    replay,
    save,
)
from pipeline.sources.git.program import environment, is_commit, without_secrets
from pipeline.sources.git.system import GitRepository
from pipeline.sources.git.view import AccessFiles, make_view, parse_tree

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


def log(*parts: str | bytes) -> Iterator[bytes]:
    return iter([part if isinstance(part, bytes) else part.encode() for part in parts])


@pytest.mark.requirement("F07")
def test_a_log_is_cut_at_nul_bytes_only() -> None:
    told = log(
        f"\x02{ONE}", "", "1700000000", "\nA", "a b\n\x02.md", "A", b"caf\xe9.md",
        f"\x02{TWO}", ONE, "1700000060", f"\x02{THREE}", f"{TWO} {ONE}", "1700000120", "\nR087", "a b\n\x02.md", "c.md",
        "D", b"caf\xe9.md", "T", "M",
    )  # fmt: skip
    commits = list(parse_log(told))
    assert [(c.id, c.parents, c.time) for c in commits] == [
        (ONE, (), 1_700_000_000),
        (TWO, (ONE,), 1_700_000_060),
        (THREE, (TWO, ONE), 1_700_000_120),
    ]
    assert commits[0].steps == [Step("A", "a b\n\x02.md"), Step("A", os.fsdecode(b"caf\xe9.md"))]
    assert commits[1].steps == []
    assert commits[2].steps == [
        Step("R", "c.md", "a b\n\x02.md"), Step("D", os.fsdecode(b"caf\xe9.md")), Step("T", "M"),
    ]  # fmt: skip


def commit(id_: str, time: int, *steps: Step, parents: tuple[str, ...] = ()) -> Commit:
    return Commit(id_, parents, time, list(steps))


@pytest.mark.requirement("F08", "A1")
def test_origins_follow_renames_and_end_with_deletion() -> None:
    files: dict[str, Origin] = {}
    apply(files, commit(ONE, 1, Step("A", "a.md"), Step("A", "b.md")), {})
    apply(files, commit(TWO, 2, Step("R", "b.md", "a.md"), Step("R", "c.md", "b.md")), {})  # a chain in one commit
    assert files == {"b.md": Origin("a.md", "1" * 12, 2), "c.md": Origin("b.md", "1" * 12, 2)}
    apply(files, commit(THREE, 3, Step("D", "b.md"), Step("A", "a.md"), Step("M", "c.md")), {})
    assert files == {"a.md": Origin("a.md", "3" * 12, 3), "c.md": Origin("b.md", "1" * 12, 3)}
    assert files["a.md"].document() != Origin("a.md", "1" * 12, 2).document()


@pytest.mark.requirement("F08")
def test_what_a_merge_brings_was_made_on_its_side() -> None:
    made = made_on_the_side(
        [
            commit(ONE, 1, Step("A", "x.md"), Step("A", "y.md"), Step("M", "old.md")),
            commit(TWO, 2, Step("R", "z.md", "x.md"), Step("D", "y.md"), Step("R", "new.md", "old.md")),
        ]
    )
    assert made == {"z.md": ("x.md", "1" * 12)}
    files = {"old.md": Origin("old.md", "0" * 12, 0)}
    apply(files, commit(THREE, 3, Step("A", "z.md"), Step("R", "new.md", "old.md"), Step("A", "evil.md")), made)
    assert files == {
        "z.md": Origin("x.md", "1" * 12, 3),
        "new.md": Origin("old.md", "0" * 12, 3),
        "evil.md": Origin("evil.md", "3" * 12, 3),  # made by the merge itself
    }


class Log:
    """Commits in a row, as a mirror would tell them."""

    def __init__(self, commits: list[Commit]) -> None:
        self.commits = commits
        self.asked: list[str] = []

    def has(self, commit: str) -> bool:
        return any(c.id == commit for c in self.commits)

    def tokens(self, *args: str) -> Iterator[bytes]:
        span = args[-1]
        self.asked.append(span)
        ids = [c.id for c in self.commits]
        since, _, head = span.rpartition("..")
        begin = ids.index(since) + 1 if since else 0
        for one in self.commits[begin : ids.index(head) + 1]:
            yield from log(f"\x02{one.id}", " ".join(one.parents), str(one.time))
            for index, step in enumerate(one.steps):
                yield ("\n" if index == 0 else "").encode() + step.status.encode()
                yield from map(os.fsencode, [step.old, step.path] if step.old else [step.path])


names = st.sampled_from(["a.md", "b.md", "d/c.md", "d/e.md", "latin-\udce9.md"])


def histories(draws: list[tuple[str, str, str]]) -> list[Commit]:
    """Valid commits of random steps."""
    standing: set[str] = set()
    commits: list[Commit] = []
    for index, (kind, path, other) in enumerate(draws):
        if kind == "A" and path not in standing:
            step = Step("A", path)
        elif kind == "R" and path in standing and other not in standing:
            step = Step("R", other, path)
        elif kind in "MD" and path in standing:
            step = Step(kind, path)
        else:
            continue
        standing -= {step.old or step.path} if kind in "RD" else set()
        standing |= {step.path} if kind != "D" else set()
        parents = (commits[-1].id,) if commits else ()
        commits.append(commit(f"{index + 1:012x}".ljust(40, "0"), index, step, parents=parents))
    return commits


@pytest.mark.requirement("A6", "I9")
@given(st.lists(st.tuples(st.sampled_from("ARMD"), names, names), min_size=1, max_size=25), st.data())
def test_replaying_in_parts_is_replaying_at_once(draws: list[tuple[str, str, str]], data: Any) -> None:
    commits = histories(draws)
    if not commits:
        return
    git: Any = Log(commits)
    stop = data.draw(st.integers(0, len(commits) - 1))
    head = commits[-1].id
    part = replay(git, commits[stop].id, [])
    assert replay(git, head, [part]) == replay(git, head, [])
    ids = [o.document() for o in part.files.values()]
    assert len(ids) == len(set(ids))  # one file a document


@pytest.mark.requirement("I9")
def test_a_base_that_is_not_on_the_way_is_passed_by() -> None:
    commits = [
        commit(ONE, 1, Step("A", "a.md")),
        commit(TWO, 2, Step("M", "a.md"), parents=(ONE,)),
    ]
    git: Any = Log(commits)
    stranger = History("9" * 40, {"x.md": Origin("x.md", "9" * 12, 0)})
    good = History(ONE, {"a.md": Origin("first.md", "8" * 12, 1)})
    assert replay(git, TWO, [stranger, good]).files == {"a.md": Origin("first.md", "8" * 12, 2)}
    assert git.asked == [f"{ONE}..{TWO}"]
    assert replay(git, TWO, [stranger]).files == {"a.md": Origin("a.md", "1" * 12, 2)}


@pytest.mark.requirement("I9")
def test_what_is_kept_for_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "h.json"
    history = History(
        ONE, {os.fsdecode(b"caf\xe9.md"): Origin("a\n.md", "1" * 12, 5), "b.md": Origin("b.md", "2" * 12, 6)}
    )
    assert load(file) is None
    save(history, file)
    assert load(file) == history and [p.name for p in tmp_path.iterdir()] == ["h.json"]
    for broken in ("", "[]", "{}", '{"format": 0}', '{"format": 1, "commit": "x", "files": {"a": 3}}', "\xff"):
        file.write_text(broken, encoding="latin-1")
        assert load(file) is None


def entry(mode: str, path: str | bytes, blob: str = "a" * 40) -> bytes:
    kind = "commit" if mode == "160000" else "blob"
    return f"{mode} {kind} {blob}\t".encode() + (path if isinstance(path, bytes) else path.encode())


ENTRIES = [
    entry("100644", "docs/.access.yaml"),
    entry("100644", "docs/groups.yaml"),
    entry("100644", "docs/a.md"),
    entry("100755", "docs/in/b.HTML"),
    entry("100644", "docs/in/tab\t.md"),
    entry("100644", b"docs/in/caf\xe9.md"),
    entry("120000", "docs/link.md"),
    entry("120000", "docs/in/.access.yaml"),
    entry("160000", "docs/sub.md"),
    entry("100644", "docs/.git-ish/x.md"),
    entry("100644", "docs/.hidden.md"),
    entry("100644", "docs/picture.svg"),
    entry("100644", "docs/only/picture.svg"),
    entry("100644", "docs-old/c.md"),
    entry("100644", "groups.yaml"),
]


@pytest.mark.requirement("A1", "I12", "F07")
def test_a_tree_below_its_root_folder() -> None:
    tree = parse_tree(iter(ENTRIES), "docs")
    assert set(tree.files) == {"a.md", "in/b.HTML", "in/tab\t.md", os.fsdecode(b"in/caf\xe9.md")}
    assert set(tree.special) == {".access.yaml", "groups.yaml", "in/.access.yaml"}
    assert tree.folders == {"", "in", "only"} and tree.submodules == ["sub.md"]
    assert "sub.md" in tree.problems()[0]
    whole = parse_tree(iter(ENTRIES), "")
    assert "docs-old/c.md" in whole.files and "groups.yaml" in whole.special and "docs/groups.yaml" not in whole.special


def test_many_submodules_are_told_in_few_words() -> None:
    tree = parse_tree(iter(entry("160000", f"s{n}") for n in range(50)), "")
    assert len(tree.problems()) == 21 and tree.problems()[-1].startswith("30 more")


@pytest.mark.requirement("A6", "F08")
def test_a_revision_is_of_text_path_and_mode() -> None:
    def revision(*changed: bytes) -> Any:
        tree = parse_tree(iter(changed), "")
        origin = Origin("a.md", "1" * 12, 7)
        view = make_view(History(ONE, dict.fromkeys(tree.files, origin)), tree, "")
        (document,) = view.documents.values()
        assert document.updated_at == 7_000_000
        return document.revision

    first = revision(entry("100644", "a.md"))
    assert first == revision(entry("100644", "a.md"))
    others = [entry("100644", "a.md", "b" * 40), entry("100755", "a.md"), entry("100644", "A.md")]
    assert len({first, *map(revision, others)}) == 4


@pytest.mark.requirement("I12", "A8")
def test_access_files_are_read_once_while_they_stay() -> None:
    read: list[str] = []

    def blob(id_: str, most: int) -> bytes:
        read.append(id_)
        return {"a" * 40: b"allow: [everyone]", "b" * 40: b"users: [ann]"}[id_]

    files = AccessFiles(blob)

    def rights(entries: Iterable[bytes]) -> Any:
        return files.rights("acme", "wiki", parse_tree(iter(entries), ""))

    entries = [entry("100644", ".access.yaml"), entry("100644", "groups.yaml", "b" * 40), entry("100644", "x/a.md")]
    first = rights(entries)
    assert first.of("") == FolderAccess(allow=frozenset({"everyone"})) and read == ["a" * 40, "b" * 40]
    rights([*entries, entry("100644", "x/b.md")])
    assert read == ["a" * 40, "b" * 40, "b" * 40]
    linked = rights([entry("120000", ".access.yaml"), entry("120000", "groups.yaml")])
    assert "not a regular file" in (linked.of("").closed or "") and len(linked.memberships()[2]) == 2
    assert len(read) == 3


@pytest.mark.requirement("I12")
def test_what_a_command_inherits() -> None:
    given = {
        "PATH": "/bin",
        "GIT_DIR": "/else",
        "GIT_CONFIG_COUNT": "1",
        "GIT_ALLOW_PROTOCOL": "ext",
        "GIT_SSH_COMMAND": "ssh -i key",
        "GIT_SSL_CAINFO": "ca",
        "GIT_TERMINAL_PROMPT": "1",
    }
    there = environment(given, network=True)
    assert "GIT_DIR" not in there and "GIT_CONFIG_COUNT" not in there and "GIT_CONFIG_GLOBAL" not in there
    assert there["GIT_SSH_COMMAND"] == "ssh -i key" and there["GIT_SSL_CAINFO"] == "ca"
    assert there["GIT_TERMINAL_PROMPT"] == "0" and there["GIT_ALLOW_PROTOCOL"] == "file:git:http:https:ssh"
    assert environment(given, network=False)["GIT_CONFIG_GLOBAL"] == os.devnull


def test_secrets_leave_messages() -> None:
    told = "fatal: unable to access 'https://ann:hunter2@host/x.git/': refused; ssh://git@host/y"
    assert without_secrets(told) == "fatal: unable to access 'https://host/x.git/': refused; ssh://host/y"


@pytest.mark.parametrize("text", ["", "main", "--all", "0" * 39, "A" * 40, "0" * 41, "g" * 40, "0" * 40 + "\n"])
def test_what_is_no_commit(text: str) -> None:
    assert not is_commit(text)
    assert is_commit("0" * 40) and is_commit("f" * 64)


@pytest.mark.requirement("A1", "I12")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("url", "--upload-pack=touch x"),
        ("url", "ext::sh -c touch"),
        ("url", ""),
        ("branch", "-x"),
        ("branch", "a:b"),
        ("branch", "*"),
        ("branch", ""),
        ("path", "../out"),
        ("path", "docs/./x"),
    ],
)
def test_settings_that_would_lead_elsewhere(key: str, value: str, tmp_path: Path) -> None:
    given = {"type": "git", "name": "wiki", "url": "https://host/x"} | {key: value}
    if key == "url":  # the settings themselves refuse it
        with pytest.raises(ValidationError, match="must be an address"):
            GitSettings.model_validate(given)
        given["url"] = "https://host/x"
        settings = GitSettings.model_validate(given).model_copy(update={"url": value})
    else:
        settings = GitSettings.model_validate(given)
    with pytest.raises(ConfigError, match=rf"sources\.{key}"):
        GitRepository(settings, ManualClock(), max_bytes=1, cache=tmp_path)
