"""One Kafka node (KRaft: broker and controller in one process) as a child process."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.errors import StartError
from infra.files import disk_errors
from infra.ports import LOOPBACK

NAME = "kafka"
PORTS = {"kafka": 1, "kafka_controller": 1}
HEAP = "512m"

# One node on a small machine: internal topics small and single, groups form and fail over at once, transactions of
# a dead producer are aborted within a second of their timeout, a restart after kill -9 is let in after three.
_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "message.max.bytes": "2097152",
    "replica.fetch.max.bytes": "2097152",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.max.compaction.lag.ms": "86400000",
    "log.roll.ms": "21600000",
    "log.segment.bytes": "134217728",
    "log.index.size.max.bytes": "1048576",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def properties(ports: Mapping[str, int], data: Path) -> str:
    """The server's configuration file."""
    broker, controller = ports["kafka"], ports["kafka_controller"]
    listeners = f"PLAINTEXT://{LOOPBACK}:{broker},CONTROLLER://{LOOPBACK}:{controller}"
    own = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "log.dirs": str(data),
    }
    return "".join(f"{name}={value}\n" for name, value in {**_FIXED, **own}.items())


def argv(java: str, libs: Path, main: str, *arguments: str) -> list[str]:
    """Command line of one of Kafka's programs. Warnings and errors go to the log."""
    return [
        java,
        f"-Xmx{HEAP}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-Dlog4j2.level=WARN",
        "-cp",
        str(libs / "*"),
        main,
        *arguments,
    ]


def format_storage(java: str, libs: Path, cluster_id: str, ports: Mapping[str, int], data: Path) -> None:
    """Prepare the data folder once; it gets its name only when it is whole. Raises StartError."""
    if data.exists():
        return
    partial = data.with_name(f".{data.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    config = data.with_name("kafka-format.properties")
    with disk_errors(data):
        config.write_text(properties(ports, partial), encoding="utf-8")
    done = subprocess.run(
        argv(java, libs, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    config.unlink()
    if done.returncode:
        raise StartError(
            f"Kafka's storage could not be prepared: {(done.stderr or done.stdout).strip()[-400:]}",
            f"Check that {data.parent} is writable and has space.",
        )
    partial.rename(data)


def environment() -> dict[str, str]:
    """What Kafka's processes see of our environment: no options meant for other Java programs."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG", "TZ") if name in os.environ}


def answers(host: str, port: int, timeout: float = 2.0) -> bool:
    """Whether the broker answers an admin request (DescribeCluster) and counts at least one live broker."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as link:
            link.settimeout(timeout)
            link.sendall(_describe_cluster())
            size = struct.unpack(">i", _receive(link, 4))[0]
            return _live_brokers(_receive(link, min(size, 1 << 20))) > 0
    except (OSError, struct.error, IndexError, ValueError):
        return False


def _describe_cluster() -> bytes:
    # Header v2: api key 60, version 0, correlation id, client id, tags; body: with operations? no, tags.
    client = b"headwater-launcher"
    header = struct.pack(">hhih", 60, 0, 1, len(client)) + client + b"\x00"
    message = header + b"\x00" + b"\x00"
    return struct.pack(">i", len(message)) + message


def _live_brokers(answer: bytes) -> int:
    # correlation (4), tags (1), throttle (4), error (2), then compact strings and the controller's id.
    (error,) = struct.unpack_from(">h", answer, 9)
    if error:
        return 0
    at = 11
    for _ in range(2):  # error message, cluster id: length + 1 in one byte, 0 for null
        at += 1 + max(0, answer[at] - 1)
    at += 4  # controller id
    return answer[at] - 1


def _receive(link: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        block = link.recv(size - len(parts))
        if not block:
            raise OSError("connection closed")
        parts += block
    return parts
