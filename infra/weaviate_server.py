"""One Weaviate node as a child process."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil

from infra.files import MIB
from infra.ports import LOOPBACK
from infra.state import Secrets

NAME = "weaviate"
# Gossip and raft need two neighbouring ports each: the server computes the second.
PORTS = {"weaviate": 1, "weaviate_grpc": 1, "weaviate_gossip": 2, "weaviate_raft": 2}
NODE = "headwater1"
ADMIN, READER = "headwater-admin", "headwater-reader"
READONLY_PERCENT = 97


def argv(binary: Path, ports: Mapping[str, int]) -> list[str]:
    """Command line of the server."""
    return [str(binary), "--host", LOOPBACK, "--port", str(ports["weaviate"]), "--scheme", "http"]


def environment(ports: Mapping[str, int], data: Path, secrets: Secrets) -> dict[str, str]:
    """The server's whole configuration: nothing of ours is inherited but where programs and temporary files are."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "TZ") if name in os.environ}
    gossip, raft = ports["weaviate_gossip"], ports["weaviate_raft"]
    return (
        inherited
        | access(secrets)
        | behaviour()
        | {
            "PERSISTENCE_DATA_PATH": str(data),
            "GRPC_PORT": str(ports["weaviate_grpc"]),
            "CLUSTER_HOSTNAME": NODE,
            "CLUSTER_IN_LOCALHOST": "true",
            "CLUSTER_BIND_ADDR": LOOPBACK,
            "CLUSTER_ADVERTISE_ADDR": LOOPBACK,
            "CLUSTER_GOSSIP_BIND_PORT": str(gossip),
            "CLUSTER_DATA_BIND_PORT": str(gossip + 1),
            "RAFT_PORT": str(raft),
            "RAFT_INTERNAL_RPC_PORT": str(raft + 1),
            "RAFT_JOIN": f"{NODE}:{raft}",
            "RAFT_BOOTSTRAP_EXPECT": "1",
            "RAFT_TIMEOUTS_MULTIPLIER": "1",
            # The raft port is part of the stored address: one that had to be changed is taken over at start.
            "RAFT_ENABLE_ONE_NODE_RECOVERY": "true",
        }
    )


def access(secrets: Secrets) -> dict[str, str]:
    """Two keys: one that may do everything, one that may only read. And one for the port between nodes."""
    return {
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
        "AUTHENTICATION_APIKEY_ENABLED": "true",
        "AUTHENTICATION_APIKEY_ALLOWED_KEYS": f"{secrets.weaviate_admin},{secrets.weaviate_read}",
        "AUTHENTICATION_APIKEY_USERS": f"{ADMIN},{READER}",
        "AUTHORIZATION_ADMINLIST_ENABLED": "true",
        "AUTHORIZATION_ADMINLIST_USERS": ADMIN,
        "AUTHORIZATION_ADMINLIST_READONLY_USERS": READER,
        # That port, like gRPC's, is bound on every interface: the server has no setting for their addresses.
        "CLUSTER_BASIC_AUTH_USERNAME": NODE,
        "CLUSTER_BASIC_AUTH_PASSWORD": secrets.weaviate_cluster,
    }


def behaviour() -> dict[str, str]:
    """Settings that do not depend on the machine's addresses."""
    return {
        "DEFAULT_VECTORIZER_MODULE": "none",
        "ENABLE_MODULES": "",
        "API_BASED_MODULES_DISABLED": "true",
        "AUTOSCHEMA_ENABLED": "false",
        "ASYNC_INDEXING": "false",
        "DISABLE_GRAPHQL": "true",
        "DISABLE_TELEMETRY": "true",
        "GO_PROFILING_DISABLE": "true",
        # Filters by hundreds of principals: all values in one walk of the index instead of a task each.
        "QUERY_BATCHED_CONTAINS_ENABLED": "true",
        "GOMEMLIMIT": f"{memory_limit_mib()}MiB",
        "CORS_ALLOW_ORIGIN": f"http://{LOOPBACK}",
        "DISK_USE_WARNING_PERCENTAGE": "95",
        "DISK_USE_READONLY_PERCENTAGE": str(READONLY_PERCENT),
        "LOG_LEVEL": "warning",
    }


def memory_limit_mib() -> int:
    """Soft limit of the server's heap: a quarter of the memory, 1 to 8 GiB."""
    quarter = psutil.virtual_memory().total // MIB // 4
    return max(1024, min(8192, quarter))


def answers(url: str, api_key: str | None, grpc_host: str, grpc_port: int, timeout: float = 2.0) -> str | None:
    """Version of a server that is ready, knows our key and accepts gRPC connections; None otherwise."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=timeout) as client:
            if client.get("/v1/.well-known/ready").status_code != 200:
                return None
            meta = client.get("/v1/meta")
            if meta.status_code != 200:
                return None
            version = str(meta.json()["version"])
        with socket.create_connection((grpc_host, grpc_port), timeout=timeout):
            return version
    except (httpx.HTTPError, OSError, ValueError, KeyError):
        return None
