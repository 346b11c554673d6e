"""The project's frame: packages are ours, import arrows hold, work does not happen at import."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "pipeline", "consumers", "dagster_project", "query_service", "infra")
HEAVY = ("torch", "openvino", "sentence_transformers", "transformers", "dagster", "unstructured")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_of_a_common_name_is_ours(name: str) -> None:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).is_relative_to(ROOT)


def test_import_arrows_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "0 broken" in done.stdout


def test_every_package_is_named_in_the_contracts_and_in_the_build() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["importlinter"]["root_packages"] == list(PACKAGES)
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name for name in included if "." not in name} == set(PACKAGES)


def test_starting_the_command_line_loads_nothing_heavy() -> None:
    code = f"import sys, infra.cli; infra.cli.build(); print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_constraints_pin_versions_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 100
    assert all("==" in line and "://" not in line and "@" not in line for line in pins)
