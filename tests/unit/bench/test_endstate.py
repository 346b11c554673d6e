"""Two indexes are equal only when they hold the same documents with the same chunks and nothing else."""

from __future__ import annotations

import pytest

from infra.bench.endstate import EndState, Held, differences

A = Held("a.md", "A", ((("Top",), "one"), ((), "two")))
B = Held("b.md", "B", (((), "three"),))


def _state(*documents: Held, stored: int | None = None, undead: tuple[str, ...] = ()) -> EndState:
    listed = sum(len(d.chunks) for d in documents)
    return EndState(documents, listed if stored is None else stored, undead)


@pytest.mark.requirement("D6")
def test_order_of_documents_does_not_matter() -> None:
    assert differences(_state(A, B), _state(B, A)) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (_state(A), "missing: b.md (B)"),
        (_state(A, B, Held("c.md", "C", (((), "x"),))), "too many: c.md (C)"),
        (_state(A, Held("b.md", "Renamed", B.chunks)), "missing: b.md (B)"),
        (_state(A, Held("b.md", "B", (((), "other"),))), "other chunks: b.md (B)"),
        (_state(A, Held("b.md", "B", ((("Heading",), "three"),))), "other chunks: b.md (B)"),
        (_state(Held("a.md", "A", A.chunks[::-1]), B), "other chunks: a.md (A)"),
        (_state(A, A, B), "other chunks: a.md (A)"),
        (_state(A, B, stored=4), "4 chunks stand in the store, 3 are listed"),
        (_state(A, B, stored=2), "2 chunks stand in the store, 3 are listed"),
        (_state(A, B, undead=("p7",)), "deleted but has chunks: p7"),
    ],
)
def test_every_difference_is_told(found: EndState, says: str) -> None:
    assert says in differences(found, _state(A, B))


def test_many_differences_are_counted() -> None:
    wanted = _state(*(Held(f"{n}.md", "x", ()) for n in range(9)))
    assert differences(_state(), wanted, most=3)[-1] == "missing: 6 more"
