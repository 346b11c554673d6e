"""Audits as checks, and the jobs that mend."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import AssetCheckKey, AssetKey, DagsterInstance, Definitions

from dagster_project.checks import PLACES, audit, mending
from dagster_project.lineage import ACCESS_RECORDS, ACTIVE_INDEX, CHANGE_LOG
from pipeline.operate.audit import CHECKS, CheckResult, Finding, Mended
from schemas.keys import DocumentRef
from tests.unit.dagster.fakes import FakeHeadwater, World

DOCUMENT = DocumentRef(tenant="acme", source="wiki", kind="page", id="a.md")


def _found(name: str, count: int) -> CheckResult:
    finding = Finding(
        tenant="acme", source="wiki", document=DOCUMENT, detail="chunk c1 is listed nowhere", mend="recheck"
    )
    return CheckResult(
        name=name, title=CHECKS[name].title, generation="minilm", examined=90, count=count,
        by={"acme/wiki": count} if count else {}, findings=(finding,) * min(count, 3),
    )  # fmt: skip


def test_every_audit_has_its_place_and_a_mend() -> None:
    assert set(PLACES) == set(CHECKS)


def _evaluate(instance: DagsterInstance, headwater: FakeHeadwater, *names: str) -> dict[str, Any]:
    keys = [AssetCheckKey(AssetKey(PLACES[name].asset), name) for name in names]
    defs = Definitions(
        assets=[ACTIVE_INDEX, ACCESS_RECORDS, CHANGE_LOG], asset_checks=[audit], resources={"headwater": headwater}
    )
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_check_selection=set(keys), asset_selection=set()
    )
    result = job.execute_in_process(instance=instance)
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


@pytest.mark.requirement("A9")
def test_selected_checks_look_once_and_show_what_they_found(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.found = {"orphan_chunks": [_found("orphan_chunks", 7)], "missing_chunks": [_found("missing_chunks", 0)]}
    made = _evaluate(instance, headwater, "orphan_chunks", "missing_chunks", "access_without_manifest")
    assert world.asked == [("orphan_chunks", "missing_chunks", "access_without_manifest")]
    assert made["missing_chunks"].passed and made["access_without_manifest"].passed
    orphans = made["orphan_chunks"]
    assert not orphans.passed and orphans.severity.value == "WARN"
    assert orphans.description == "7 of 90: 7 in acme/wiki"
    assert orphans.metadata["to mend"].value == "job mend_orphan_chunks"
    assert dict(orphans.metadata["findings"].records[0].data)["document"] == "a.md"


@pytest.mark.requirement("A9")
def test_a_mend_looks_again_and_tells_the_check(
    instance: DagsterInstance, headwater: FakeHeadwater, world: World
) -> None:
    world.found = {"orphan_chunks": [_found("orphan_chunks", 7), _found("orphan_chunks", 0)]}
    world.mended = [Mended(check="orphan_chunks", findings=7, mended=7)]
    result = mending("orphan_chunks").execute_in_process(instance=instance, resources={"headwater": headwater})
    assert result.success
    key = AssetCheckKey(AssetKey("active_index"), "orphan_chunks")
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    assert record.event is not None and record.event.dagster_event is not None
    assert record.event.dagster_event.asset_check_evaluation_data.passed


def test_a_mend_that_fails_says_so(instance: DagsterInstance, headwater: FakeHeadwater, world: World) -> None:
    world.found = {"orphan_chunks": [_found("orphan_chunks", 2)]}
    world.mended = [Mended(check="orphan_chunks", findings=2, failed=2, reasons={"no receipt within 60 s": 2})]
    result = mending("orphan_chunks").execute_in_process(
        instance=instance, resources={"headwater": headwater}, raise_on_error=False
    )
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert not result.success and "no receipt within 60 s" in str(failed.event_specific_data)


def test_every_mend_has_a_job() -> None:
    from dagster_project.definitions import build

    jobs = {name for name in build(()).get_repository_def().job_names if name.startswith("mend_")}
    assert jobs == {f"mend_{name}" for name, place in PLACES.items() if not place.mend}
