"""What the launcher remembers between runs: addresses (``services.json``) and keys (``secrets.json``, mode 0600)."""

from __future__ import annotations

import base64
import secrets
import uuid
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.errors import InfraError
from infra.files import write_atomic

Mode = Literal["native", "docker"]
_Model = TypeVar("_Model", bound=BaseModel)


def _key() -> str:
    return secrets.token_urlsafe(32)


def _cluster_id() -> str:
    # Kafka's own form of a random id; a leading '-' would be read as an option by its tools.
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text


class State(BaseModel):
    """Ports by name, and how the services are run."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode | None = None
    cluster_id: str = Field(default_factory=_cluster_id)
    ports: dict[str, int] = {}
    begun_with: dict[str, str] = {}  # by process: a hash of the settings of sources that it was started with


class Secrets(BaseModel):
    """Keys made once per state directory."""

    model_config = ConfigDict(extra="forbid")

    weaviate_admin: str = Field(default_factory=_key)
    weaviate_read: str = Field(default_factory=_key)
    weaviate_cluster: str = Field(default_factory=_key)
    jwt: str = Field(default_factory=_key)
    service: str = Field(default_factory=_key)
    gateway: str = Field(default_factory=_key)


class Store:
    """Reads and writes both files of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.state_file = state_dir / "services.json"
        self.secrets_file = state_dir / "secrets.json"

    def state(self) -> State:
        """The remembered state, fresh where there is none. Raises InfraError where the file is damaged."""
        return _read(self.state_file, State)

    def save(self, state: State) -> None:
        """Remember the state."""
        write_atomic(self.state_file, state.model_dump_json(indent=2).encode())

    def secrets(self) -> Secrets:
        """The keys, made on first use; one that a later version added is made then."""
        found = _read(self.secrets_file, Secrets)
        if found.model_fields_set != set(Secrets.model_fields):
            write_atomic(self.secrets_file, found.model_dump_json(indent=2).encode(), 0o600)
        return found


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return model()
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InfraError(
            f"{path} is damaged ({error.error_count()} errors).",
            "Run `headwater down`, delete the file and run `headwater up`; data is kept.",
        ) from error
