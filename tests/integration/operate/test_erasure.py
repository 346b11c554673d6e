"""Erasure of a tenant on real Kafka and Weaviate: interrupted anywhere, run again, the neighbour left whole."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from consumers.erasing import Erasing
from pipeline.operate import erasure
from pipeline.operate.erasure import Eraser
from pipeline.operate.erasure_proof import ErasureProof
from pipeline.operate.tenants import TenantRefused, export, marks_of, resume, suspend, tenants
from pipeline.ports import ProgressBar, SourceMembership
from pipeline.settings_sources import FolderSettings
from schemas.access import SUSPENDED
from schemas.deletion import TenantErasure
from schemas.keys import DocumentRef
from tests.integration.bus.conftest import Lane, lane  # noqa: F401 (a fixture)
from tests.integration.operate.plant import NAMES, Plant
from tests.unit.query.world import ref

LONG = "\n\n".join(f"paragraph {n} about the pelican release plan and its costs" for n in range(4))


class Killed(BaseException):
    """Stands for kill -9."""


def doc(name: str, tenant: str) -> DocumentRef:
    return ref(name, source="kb", tenant=tenant)


@pytest.fixture
def plant(lane: Lane) -> Iterator[Plant]:  # noqa: F811
    lane.consumer()
    made = Plant(lane)
    made.ready()
    for tenant in ("acme", "globex"):
        people = [SourceMembership(tenant, f"user:{n}", ("group:kb/all",)) for n in ("ann", "bob")]
        pages = [made.page(doc(f"p{n}", tenant), LONG + f" {n}") for n in range(4)]
        made.say(tenant, *people, *pages)
    for tenant in ("acme", "globex"):
        for n in range(4):
            made.holds(doc(f"p{n}", tenant), 4)
    yield made
    made.close()


def neighbour(plant: Plant) -> list[object]:
    """Everything of the tenant that is not erased, by what stands."""
    found: list[object] = []
    for name in NAMES:
        for tier in ("hot", "cold"):
            found.append(sorted(c.chunk_id for c in plant.store.walk_chunks(name, tier, "globex")))
        found.append(sorted(m.model_dump_json() for m in plant.store.walk_manifests(name, "globex")))
        found.append(sorted(plant.store.walk_sections(name, "globex")))
    found.append(sorted(r.model_dump_json() for r in plant.store.walk_access("globex")))
    found.append(sorted(r.model_dump_json() for r in plant.store.walk_principals("globex")))
    found.append(plant.bodies.of_tenant("globex"))
    return found


def left(found: TenantErasure) -> dict[str, int]:
    return {p.place: p.found for p in found.places if not p.clean and not p.empties_itself}


@pytest.mark.requirement("E1", "I1")
def test_an_erasure_that_is_killed_at_each_step_is_run_again_and_leaves_the_neighbour_untouched(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "QUIET_WAIT_S", 1.0)
    settings, store = plant.settings, plant.store
    configured = settings.model_copy(
        update={"sources": (FolderSettings(name="kb", tenant="acme", path=settings.state_dir),)}
    )
    with pytest.raises(TenantRefused, match="is configured"):
        Eraser(configured, store, "acme").erase()
    with pytest.raises(TenantRefused, match="still writes"):  # its writer wrote just now
        Eraser(settings, store, "acme", quiet_s=60).erase()
    assert Erasing(store, plant.clock.elapsed)("acme") and not Erasing(store, plant.clock.elapsed)("globex")
    with pytest.raises(TenantRefused, match="erasure of acme has begun"):
        resume(settings, store, "acme")
    plant.leave("acme")
    before = neighbour(plant)
    assert left(ErasureProof(settings, store, "acme").prove())["g1/hot"] == 16

    for step, after in (("delete kb", 1), ("end keys", 1), ("drop", 1)):
        with pytest.raises(Killed):
            Eraser(settings, store, "acme", quiet_s=0.2, progress=killing(step, after)).erase()
    found = Eraser(settings, store, "acme", quiet_s=0.2, timeout_s=60).erase()
    assert left(found) == {}
    assert found.standing == "bounded" and found.clean_by is not None and found.clean_by > plant.clock.now()
    assert {p.place for p in found.places} >= {f"{n}/{part}" for n in NAMES for part in ("hot", "cold", "sections")}
    assert all("acme" not in store.tenants(place) for place in (*NAMES, None))
    assert plant.bodies.of_tenant("acme") == [] and neighbour(plant) == before
    assert left(Eraser(settings, store, "acme", quiet_s=0.2).erase()) == {}  # once more changes nothing
    assert [t.tenant for t in tenants(settings, store)] == ["globex"]


def killing(step: str, after: int) -> ProgressBar:
    """Ends the process when the step has done this much."""

    def tell(now: str, done: int, total: int | None) -> None:
        if now == step and done >= after:
            raise Killed

    return tell


@pytest.mark.requirement("E1", "I4")
def test_a_suspended_tenant_is_closed_by_one_event_and_its_export_holds_documents_with_readers(plant: Plant) -> None:
    settings, store = plant.settings, plant.store
    suspend(settings, store, "acme")
    assert marks_of(store, "acme") == {SUSPENDED} and marks_of(store, "globex") == frozenset()
    assert {t.tenant: (t.suspended, t.sources) for t in tenants(settings, store)} == {
        "acme": (True, {"kb": 4}), "globex": (False, {"kb": 4}),
    }  # fmt: skip
    plant.say("acme", plant.page(doc("late", "acme"), "while closed"))  # goes on being indexed
    plant.indexed(doc("late", "acme"), lambda name: plant.texts(name, doc("late", "acme")) == 1)
    resume(settings, store, "acme")
    assert marks_of(store, "acme") == frozenset()
    with pytest.raises(TenantRefused, match="no tenant nowhere"):
        suspend(settings, store, "nowhere")

    out = io.StringIO()
    done = export(settings, "acme", out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    documents = {x["document"]["id"]: x for x in lines if x["type"] == "document"}
    assert (done.documents, done.principals, done.missing) == (5, 2, ())
    assert documents["p0"]["text"] == LONG + " 0" and "user:ann" in json.dumps(documents["p0"]["access"])
    assert {x["principal"] for x in lines if x["type"] == "principal"} == {"user:ann", "user:bob"}
