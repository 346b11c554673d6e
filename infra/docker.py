"""The same services by Docker Compose, for machines where a daemon answers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from infra.errors import StartError
from infra.progress import Reporter
from infra.state import Secrets, State

COMPOSE_FILE = Path(__file__).with_name("compose.yaml")
UP_SECONDS = 900.0


def answers() -> bool:
    """Whether a Docker daemon answers and Compose is installed."""
    if shutil.which("docker") is None:
        return False
    return all(_quietly(["docker", *words]) for words in (["info"], ["compose", "version"]))


def _quietly(argv: list[str]) -> bool:
    try:
        return (
            subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=10, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def environment(state_dir: Path, state: State, secrets: Secrets) -> dict[str, str]:
    """Variables that fill in the compose file. One project per state directory."""
    project = f"headwater-{hashlib.sha256(str(state_dir).encode()).hexdigest()[:8]}"
    return {
        "HEADWATER_COMPOSE_PROJECT": project,
        "HEADWATER_KAFKA_CLUSTER_ID": state.cluster_id,
        "HEADWATER_KAFKA_PORT": str(state.ports.get("kafka", 9092)),
        "HEADWATER_WEAVIATE_PORT": str(state.ports.get("weaviate", 8080)),
        "HEADWATER_WEAVIATE_GRPC_PORT": str(state.ports.get("weaviate_grpc", 50051)),
        "HEADWATER_WEAVIATE_ADMIN_KEY": secrets.weaviate_admin,
        "HEADWATER_WEAVIATE_READ_KEY": secrets.weaviate_read,
    }


def up(state_dir: Path, state: State, secrets: Secrets, names: list[str], report: Reporter) -> None:
    """Pull and start the containers. Raises StartError."""
    report.step("docker", "pulling and starting containers")
    _compose(["up", "-d", *names], environment(state_dir, state, secrets), UP_SECONDS)
    report.finish("docker", "containers started")


def down(state_dir: Path, state: State, secrets: Secrets) -> None:
    """Stop and remove the containers; volumes stay. Raises StartError."""
    _compose(["down"], environment(state_dir, state, secrets), 120.0)


def logs(state_dir: Path, state: State, secrets: Secrets, name: str, lines: int, follow: bool) -> int:
    """Print a container's log to our own output. Returns Compose's exit status."""
    words = ["logs", "--no-log-prefix", "--tail", str(lines), *(["--follow"] if follow else []), name]
    argv = ["docker", "compose", "-f", str(COMPOSE_FILE), *words]
    env = os.environ | environment(state_dir, state, secrets)
    return subprocess.run(argv, env=env, check=False).returncode


def _compose(words: list[str], env: dict[str, str], timeout: float) -> None:
    argv = ["docker", "compose", "-f", str(COMPOSE_FILE), *words]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"docker compose {words[0]} failed: {error}.", "Check that Docker runs.") from error
    if done.returncode:
        raise StartError(
            f"docker compose {words[0]} failed:\n{done.stderr.strip()[-600:]}\n",
            "Check that Docker runs and can pull.",
        )
