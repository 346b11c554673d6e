"""Renews the snapshots: ``python -m tests.snapshots``. With ``--print``, prints those of this process instead."""

from __future__ import annotations

import json
import sys
from typing import TextIO

from schemas.generation import CHUNKING_REVISION
from tests.snapshots import FOLDER, corpus, stored, taken, written

SAME = "--same-revision"


def renew(arguments: list[str], out: TextIO) -> int:
    """Write what changed; exit status 1 where that needs a new revision first, and nothing is written then."""
    changed: dict[str, bool] = {}
    found = {}
    for truth, file in corpus():
        if truth.ocr and (kept := stored(truth.file)) is not None and kept["revision"] == CHUNKING_REVISION:
            continue  # Tesseract's versions differ: what was kept is still compared by likeness
        now, kept = taken(truth, file), stored(truth.file)
        found[truth.file] = now
        if now != kept:
            changed[truth.file] = kept is not None and kept["revision"] == CHUNKING_REVISION
    held = [name for name, same in changed.items() if same]
    if held and SAME not in arguments:
        print(
            f"{len(held)} documents are cut in another way than revision {CHUNKING_REVISION} cut them: "
            f"{', '.join(held[:5])}.\nRaise CHUNKING_REVISION in schemas/generation.py and run this again. Where no "
            f"generation of that revision was ever made (it is not released): python -m tests.snapshots {SAME}",
            file=out,
        )
        return 1
    for name in changed:
        written(name, found[name])
    known = {f"{truth.file}.json" for truth, _ in corpus()}
    for file in FOLDER.glob("*.json"):
        if file.name not in known:
            file.unlink()
    print(f"{len(changed)} snapshots written, revision {CHUNKING_REVISION}", file=out)
    return 0


def main() -> None:
    """As the arguments say."""
    if "--print" in sys.argv:
        print(json.dumps({truth.file: taken(truth, file) for truth, file in corpus() if not truth.ocr}))
        return
    sys.exit(renew(sys.argv[1:], sys.stdout))


if __name__ == "__main__":
    main()
