"""The asset graph in plain words. ``python -m tests.unit.dagster.graph`` writes the snapshot after a wanted change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.settings import Settings

SOURCES = Settings.model_validate(
    {
        "sources": [
            {"name": "wiki", "path": "/srv/wiki"},
            {"name": "tickets-2.eu", "tenant": "other", "type": "redmine", "url": "https://t.example", "api_key": "k"},
        ]
    }
).sources
SNAPSHOT = Path(__file__).with_name("asset_graph.json")


def graph() -> dict[str, Any]:
    """Assets, checks, jobs, schedules and sensors as the interface shows them."""
    from dagster_project.definitions import build

    defs = build(SOURCES)
    resolved = defs.resolve_asset_graph()
    nodes = [resolved.get(key) for key in sorted(resolved.get_all_asset_keys())]
    repository = defs.get_repository_def()
    assets = {
        node.key.to_user_string(): {
            "group": node.group_name,
            "kinds": sorted(node.kinds),
            "owners": sorted(node.owners),
            "deps": sorted(parent.to_user_string() for parent in node.parent_keys),
            "partitions": str(type(node.partitions_def).__name__) if node.partitions_def is not None else None,
            "executable": node.is_executable,
            "automation": node.automation_condition.get_label() if node.automation_condition is not None else None,
            "fresh": type(node.freshness_policy).__name__ if node.freshness_policy is not None else None,
            "described": bool(node.description),
        }
        for node in nodes
    }
    checks = {
        f"{key.asset_key.to_user_string()}:{key.name}": {
            "blocking": (spec := resolved.get_check_spec(key)).blocking,
            "described": bool(spec.description),
        }
        for key in sorted(resolved.asset_check_keys, key=str)
    }
    return {
        "assets": assets,
        "checks": checks,
        "jobs": sorted(name for name in repository.job_names if not name.startswith("__")),
        "schedules": {
            s.name: {"cron": s.cron_schedule, "status": s.default_status.value} for s in repository.schedule_defs
        },
        "sensors": {
            s.name: {"every_s": s.minimum_interval_seconds, "status": s.default_status.value}
            for s in sorted(repository.sensor_defs, key=lambda s: s.name)
        },
    }


def write() -> None:
    """Replace the snapshot."""
    SNAPSHOT.write_text(json.dumps(graph(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
