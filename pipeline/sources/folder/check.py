"""Whether a folder can be read and watched, and whose access files cannot be used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.clock import Clock
from pipeline.settings_sources import FolderSettings
from pipeline.sources.folder.pages import is_document
from pipeline.sources.folder.readers import Readers
from pipeline.sources.folder.tree import Tree, Walked, is_special
from pipeline.sources.remote.contract import Finding

WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")
SHOWN = 20
"""Problems of one kind that are named."""


def findings(settings: FolderSettings, clock: Clock, *, watches: Path = WATCHES) -> list[Finding]:
    """What is as it should be, and what is not. ``watches`` holds how many folders a user may watch."""
    root = settings.path
    if not root.is_dir():
        return [Finding(f"{root} is no folder", False, "Name an existing folder in path.")]
    walked = Tree(str(root)).walk()
    if not walked.folders:
        said = "; ".join(walked.problems) or f"{root} cannot be listed"
        return [Finding(said, False, "Let the account that runs Headwater read it.")]
    return [
        *_files(root, walked), *_watch(len(walked.folders), watches), *_readers(settings, root, walked, clock)
    ]  # fmt: skip


def _files(root: Path, walked: Walked) -> Iterator[Finding]:
    documents = [path for path in walked.files if is_document(path) and not is_special(path)]
    yield Finding(f"{len(documents):,} documents in {len(walked.folders):,} folders", True)
    for problem in walked.problems[:SHOWN]:
        yield Finding(problem, False, "Let the account that runs Headwater list it; until then nothing is deleted.")
    closed = [path for path in documents if not os.access(root / path, os.R_OK)]
    if closed:
        what = f"{len(closed):,} documents cannot be read, for instance {closed[0]}"
        yield Finding(what, False, "Let the account that runs Headwater read them.")


def _watch(folders: int, watches: Path) -> Iterator[Finding]:
    try:
        limit = int(watches.read_text(encoding="ascii"))
    except (OSError, ValueError):
        yield Finding("the system watches no folders: changes wait for the periodic walk", False, "Lower walk_s.")
        return
    if folders > limit:
        remedy = f"sysctl fs.inotify.max_user_watches={2 * folders}"
        yield Finding(f"{folders:,} folders, of which {limit:,} can be watched", False, remedy)
    else:
        yield Finding(f"all folders can be watched (the limit is {limit:,})", True)


def _readers(settings: FolderSettings, root: Path, walked: Walked, clock: Clock) -> Iterator[Finding]:
    readers = Readers(settings.tenant, settings.name, Tree(str(root)), clock)
    readers.refresh_groups()
    readers.refresh(sorted(walked.folders), walked.unreadable)
    whole, problems, alarms = readers.memberships()
    people = sum(m.principal.startswith("user:") for m in whole)
    if people:
        yield Finding(f"groups.yaml lists {people:,} people", True)
    for alarm in alarms[:SHOWN]:
        yield Finding(alarm, False, "Correct it: until then it keeps people out.")
    for problem in problems[:SHOWN]:
        yield Finding(problem, False, "Correct it, or leave the name out.")
