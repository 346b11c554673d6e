"""Where Kafka and Weaviate are, and how Headwater's processes are told."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from infra.ports import LOOPBACK
from infra.state import Secrets, State
from pipeline.settings import Settings


class Endpoints(BaseModel):
    """Addresses and keys of the running services."""

    bootstrap: str
    weaviate_http_url: str
    weaviate_grpc_host: str
    grpc_port: int
    api_key: str | None = None
    read_api_key: str | None = None
    weaviate_data: str | None = None  # its folder, where it is our own

    def environment(self, *, read_only: bool = False) -> dict[str, str]:
        """Variables that point Headwater's own processes here; a reader gets the key that cannot write."""
        found = {
            "HEADWATER_KAFKA__BOOTSTRAP": self.bootstrap,
            "HEADWATER_WEAVIATE__URL": self.weaviate_http_url,
            "HEADWATER_WEAVIATE__GRPC_HOST": self.weaviate_grpc_host,
            "HEADWATER_WEAVIATE__GRPC_PORT": str(self.grpc_port),
        }
        if self.weaviate_data:
            found["HEADWATER_WEAVIATE__DATA"] = self.weaviate_data
        if read_only and self.read_api_key:
            found["HEADWATER_WEAVIATE__READ_API_KEY"] = self.read_api_key
        elif self.api_key:
            found["HEADWATER_WEAVIATE__API_KEY"] = self.api_key
        return found

    def apply(self, settings: Settings) -> Settings:
        """A copy of the settings that points here."""
        kafka = settings.kafka.model_copy(update={"bootstrap": self.bootstrap})
        weaviate = settings.weaviate.model_validate(
            settings.weaviate.model_dump()
            | {
                "url": self.weaviate_http_url,
                "grpc_host": self.weaviate_grpc_host,
                "grpc_port": self.grpc_port,
                "api_key": self.api_key,
                "read_api_key": self.read_api_key,
                "data": self.weaviate_data,
            }
        )
        return settings.model_copy(update={"kafka": kafka, "weaviate": weaviate})


def external(settings: Settings | None) -> tuple[Endpoints | None, Endpoints | None]:
    """Kafka and Weaviate where the settings name them explicitly; None for each that the launcher has to start."""
    if settings is None:
        return None, None
    weaviate = settings.weaviate
    where = Endpoints(
        bootstrap=settings.kafka.bootstrap,
        weaviate_http_url=weaviate.url,
        weaviate_grpc_host=weaviate.grpc_host,
        grpc_port=weaviate.grpc_port,
        api_key=weaviate.api_key.get_secret_value() if weaviate.api_key else None,
        read_api_key=weaviate.read_api_key.get_secret_value() if weaviate.read_api_key else None,
        weaviate_data=str(weaviate.data) if weaviate.data else None,
    )
    return (
        where if "bootstrap" in settings.kafka.model_fields_set else None,
        where if "url" in weaviate.model_fields_set else None,
    )


def local(state: State, keys: Secrets, weaviate_data: Path | None = None) -> Endpoints:
    """The services of this state directory. Ports that were never chosen are 0."""
    return Endpoints(
        bootstrap=f"{LOOPBACK}:{state.ports.get('kafka', 0)}",
        weaviate_http_url=f"http://{LOOPBACK}:{state.ports.get('weaviate', 0)}",
        weaviate_grpc_host=LOOPBACK,
        grpc_port=state.ports.get("weaviate_grpc", 0),
        api_key=keys.weaviate_admin,
        read_api_key=keys.weaviate_read,
        weaviate_data=str(weaviate_data.absolute()) if weaviate_data else None,
    )
