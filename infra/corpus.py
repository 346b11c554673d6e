"""The corpus of ``headwater run``: the handbook's last state where it is at hand, else the sample wiki.

A copy is laid under the state directory, so that people can edit and restrict pages without touching the originals.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from pipeline.sources.folder.access import (
    ACCESS_FILE,
    GROUPS_FILE,
    AccessFileError,
    parse_access,
    parse_groups,
)
from schemas.access import EVERYONE

HANDBOOK = Path("..") / "shared" / "data" / "handbook-history" / "events.jsonl"
SAMPLE_WIKI = Path("samples") / "wiki"
# Readers of the handbook's second-level folders; its history has no permissions of its own.
HANDBOOK_READERS = {
    "about-us": ["everyone"],
    "welcome-to-TTS": ["everyone"],
    "how-we-work": ["group:delivery"],
    "policies": ["group:people-ops", "group:managers"],
    "parked": ["group:managers"],
}
HANDBOOK_GROUPS = {
    "users": ["ann", "bob", "cleo", "dan"],
    "groups": {
        "delivery": ["bob", "group:managers"],
        "people-ops": ["cleo"],
        "managers": ["ann"],
    },
}


@dataclass(frozen=True)
class Corpus:
    """A folder source that is ready to be watched, and two people who see different things in it."""

    name: str
    path: Path
    tenant: str
    wide: str  # a person who may read (nearly) everything
    narrow: str  # a person who may not
    restricted: str  # a folder (relative) that wide may read and narrow may not
    question: str  # what only wide gets answers to from that folder
    documents: int


def prepare(state_dir: Path, root: Path) -> Corpus:
    """Lay the corpus under ``state_dir`` unless it is there already; ``root`` is the project's folder."""
    handbook = root / HANDBOOK
    if handbook.is_file():
        target = state_dir / "corpus" / "handbook"
        if not target.is_dir():
            _whole(target, lambda folder: write_handbook(handbook, folder))
        return Corpus("handbook", target, "acme", "ann", "bob", "_pages/policies", "travel policy", _count(target))
    target = state_dir / "corpus" / "wiki"
    if not target.is_dir():
        _whole(target, lambda folder: shutil.copytree(root / SAMPLE_WIKI, folder, dirs_exist_ok=True))
    return sample_corpus(target)


def sample_corpus(path: Path) -> Corpus:
    """The sample wiki at ``path``."""
    return Corpus("wiki", path, "acme", "ann", "omar", "engineering", "how is a service deployed", _count(path))


def _whole(target: Path, fill: object) -> None:
    """Fill a folder under a temporary name and rename it when it is whole."""
    assert callable(fill)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    partial.rename(target)


def _count(path: Path) -> int:
    return sum(1 for _ in pages(path))


def pages(path: Path) -> Iterator[Path]:
    """The files that become documents."""
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden and file.name != "groups.yaml":
            yield file


def last_state(events: Path) -> dict[str, dict[str, str]]:
    """Live pages of a history file by page id, after all events in order of ``seq``."""
    live: dict[str, dict[str, str]] = {}
    with events.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["op"] == "delete":
                live.pop(event["page_id"], None)
            else:
                live[event["page_id"]] = event
    return live


def write_access(target: Path) -> None:
    """Readers per second-level folder and the groups of the handbook."""
    for folder, readers in HANDBOOK_READERS.items():
        place = target / "_pages" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / ".access.yaml").write_text(yaml.safe_dump({"allow": readers, "deny": []}), encoding="utf-8")
    (target / "groups.yaml").write_text(yaml.safe_dump(HANDBOOK_GROUPS, sort_keys=False), encoding="utf-8")


def write_handbook(events: Path, target: Path) -> None:
    """The last state of the handbook's history as a tree of Markdown files."""
    write_access(target)
    for page in last_state(events).values():
        file = target / page["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page["text"], encoding="utf-8")


def readable(path: Path, user: str) -> Callable[[Path], bool]:
    """Tells of each page below ``path`` whether its files let ``user`` read it."""
    mine = {EVERYONE, f"user:{user}"}
    try:
        groups, _ = parse_groups((path / GROUPS_FILE).read_bytes())
    except (OSError, AccessFileError):
        return lambda page: False
    while more := {f"group:{g}" for g, members in groups.groups.items() if members & mine} - mine:
        mine |= more

    def opened(folder: Path) -> bool:
        file = folder / ACCESS_FILE
        if not file.is_file():
            return True
        try:
            rule = parse_access(file.read_bytes(), file.name)
        except (OSError, AccessFileError):
            return False
        return bool(rule.allow & mine) and not rule.deny & mine

    return lambda page: all(opened(folder) for folder in page.parents if folder.is_relative_to(path))


_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_MARKER = re.compile(r"^\s*(?:[-*+>]|\d+\.|#+)\s+")
_MARKUP = re.compile(r"[<>`*\[\]|_]|://|&\w+;")


def known_items(
    path: Path, count: int, seed: int = 7, wanted: Callable[[Path], bool] = lambda page: True
) -> list[tuple[Path, str]]:
    """Known-item questions: (page, a run of 8 to 12 words that stands in that page alone), seeded.

    Only pages that are ``wanted`` are asked for.
    """
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in pages(path)}
    chosen = random.Random(seed)
    files = [file for file in texts if wanted(file)]
    chosen.shuffle(files)
    questions: list[tuple[Path, str]] = []
    for file in files:
        if len(questions) >= count:
            break
        run = _own_run(texts, file, chosen)
        if run:
            questions.append((file, run))
    return questions


def _own_run(texts: dict[Path, str], file: Path, chosen: random.Random) -> str | None:
    body = _CODE.sub("", _FRONT_MATTER.sub("", texts[file]))
    lines = [_MARKER.sub("", line) for line in body.splitlines()]
    sentences = [s for line in lines for s in re.split(r"(?<=[.!?])\s+", line) if not _MARKUP.search(s)]
    chosen.shuffle(sentences)
    for sentence in sentences:
        words = sentence.split()[:12]
        run = " ".join(words)
        if len(words) >= 8 and sum(run in text for text in texts.values()) == 1:
            return run
    return None
