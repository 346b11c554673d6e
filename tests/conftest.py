"""Fixtures for every test: marking by folder, no sockets in unit tests, one real Kafka and Weaviate per session."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import hypothesis
import pytest

from infra.endpoints import Endpoints
from infra.launcher import Services
from pipeline.settings import Settings

TESTS = Path(__file__).parent
# As many examples as always, but no clock of their own on a busy machine. In CI the same tree gives the same verdict;
# elsewhere each run looks at other examples.
hypothesis.settings.register_profile(
    "headwater", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.load_profile("headwater")
KINDS = ("unit", "contract", "integration", "e2e", "faults", "browser")
SHARED_DATA = TESTS.parent.parent / "shared" / "data"


def pytest_configure() -> None:
    """A shell ignores interrupts for what it starts in the background, and children inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Collections of garbage need not go through thousands of test items: it would count in measured times."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder, so that `-m unit` and `tests/unit` mean the same."""
    for item in items:
        try:
            kind = item.path.relative_to(TESTS).parts[0]
        except ValueError:
            continue
        if kind in KINDS:
            item.add_marker(kind)


@pytest.fixture(autouse=True)
def _no_connections_in_unit_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit test that connects anywhere fails and says so."""
    if request.node.get_closest_marker("unit") is None:
        return

    def refuse(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"a unit test connects to {address!r}: use a fake, or move it to tests/integration")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """State directory of the session's services: HEADWATER_TEST_STATE, else a temporary one."""
    named = os.environ.get("HEADWATER_TEST_STATE")
    return Path(named) if named else tmp_path_factory.mktemp("services")


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where obtained binaries and models are kept between runs."""
    return Path(os.environ.get("HEADWATER_CACHE_DIR", "~/.cache/headwater")).expanduser()


@pytest.fixture(scope="session")
def local_services(state_dir: Path, cache_dir: Path) -> Iterator[Services]:
    """The launcher of the session's own Kafka and Weaviate: started once, stopped at the end unless it ran before."""
    launcher = Services(state_dir, cache_dir=cache_dir, mode="native")
    ran_before = all(line.state == "up" for line in launcher.status())
    launcher.up()
    yield launcher
    if not ran_before:
        launcher.down()


@pytest.fixture(scope="session")
def services(local_services: Services) -> Endpoints:
    """Addresses and keys of the session's Kafka and Weaviate."""
    return local_services.endpoints()


@pytest.fixture
def namespace() -> str:
    """A name of this test's own for topics, groups and collections."""
    return f"t{uuid4().hex[:12]}"


@pytest.fixture
def settings(
    services: Endpoints, namespace: str, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings that point at the session's services, in the test's own namespace, with three partitions."""
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADWATER_CONFIG", str(tmp_path / "absent.toml"))
    base = Settings(namespace=namespace, state_dir=tmp_path / "state", cache_dir=cache_dir)
    bodies = base.bodies.model_copy(update={"store": f"file://{tmp_path / 'bodies'}"})
    query = base.query.model_copy(update={"receipts_path": tmp_path / "receipts.sqlite"})
    kafka = base.kafka.model_copy(update={"partitions": 3})
    return services.apply(base.model_copy(update={"bodies": bodies, "query": query, "kafka": kafka}))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real corpora beside the checkout; tests over them are skipped, visibly, where they are absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no shared data beside this checkout")
    return SHARED_DATA
