"""What an index holds of a tenant, reduced to what must be equal however it came to be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Chunks = tuple[tuple[tuple[str, ...], str], ...]
"""A document's chunks in order, each as heading path and text."""


@dataclass(frozen=True)
class Held:
    """One live document: where it is, what it is called, what it says."""

    path: str
    title: str
    chunks: Chunks


@dataclass(frozen=True)
class EndState:
    """Live documents, chunks that stand in the store, and deleted documents that still have some."""

    documents: tuple[Held, ...]
    stored_chunks: int
    undead: tuple[str, ...] = ()


def differences(found: EndState, wanted: EndState, most: int = 5) -> list[str]:
    """Why the two are not the same index; empty where they are. At most ``most`` documents are named of each kind."""
    faults: list[str] = []
    ours, theirs = _by_place(found.documents), _by_place(wanted.documents)
    for what, places in (
        ("missing", sorted(set(theirs) - set(ours))),
        ("too many", sorted(set(ours) - set(theirs))),
        ("other chunks", sorted(place for place in set(ours) & set(theirs) if ours[place] != theirs[place])),
    ):
        faults += [f"{what}: {path} ({title})" for path, title in places[:most]]
        if len(places) > most:
            faults.append(f"{what}: {len(places) - most} more")
    faults += [f"deleted but has chunks: {name}" for name in found.undead[:most]]
    listed = sum(len(document.chunks) for document in found.documents)
    if found.stored_chunks != listed:
        faults.append(f"{found.stored_chunks} chunks stand in the store, {listed} are listed")
    return faults


def _by_place(documents: Sequence[Held]) -> dict[tuple[str, str], list[Chunks]]:
    """Chunks by path and title; two documents at one place stand beside each other, so that none hides another."""
    found: dict[tuple[str, str], list[Chunks]] = {}
    for document in documents:
        found.setdefault((document.path, document.title), []).append(document.chunks)
    return {place: sorted(chunks) for place, chunks in found.items()}
