"""Definitions with a sensor that asks for the same run twice in one tick, and for one that nobody had before."""

from __future__ import annotations

from dagster import DefaultSensorStatus, Definitions, RunRequest, SensorEvaluationContext, job, op, sensor


@op
def nothing() -> None:
    """Does nothing."""


@job
def quiet() -> None:
    """A job without work."""
    nothing()


@sensor(job=quiet, minimum_interval_seconds=0, default_status=DefaultSensorStatus.RUNNING)
def doubled(context: SensorEvaluationContext) -> list[RunRequest]:
    """Two equal keys and one other."""
    return [RunRequest(run_key="same"), RunRequest(run_key="same"), RunRequest(run_key="other")]


defs = Definitions(jobs=[quiet], sensors=[doubled])
