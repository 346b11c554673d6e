"""Creation and description of topics. Partition counts are fixed for the log's life."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType

from pipeline.bus.client import MAX_RECORD_BYTES, common, translated
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.topics import TOPICS, Topic, TopicSpec

DAY_MS = 86_400_000
COMPACTION_LAG_MS = DAY_MS
"""A superseded body leaves the log within this time (max.compaction.lag.ms); segments roll at a quarter of it."""
TOMBSTONE_MS = 90 * DAY_MS


@dataclass(frozen=True)
class TopicDescription:
    """A topic as it stands on the broker."""

    topic: Topic
    name: str
    partitions: int
    replication: int
    description: str
    configuration: dict[str, str] = field(default_factory=dict)


def partitions_of(spec: TopicSpec, settings: Settings) -> int:
    """Partition count of a topic under these settings."""
    return settings.kafka.partitions if spec.partitioned else 1


def spec_of(topic: str) -> TopicSpec:
    """Specification of a logical topic. Raises KeyError for an unknown name."""
    return _SPECS[topic]


_SPECS = {str(spec.topic): spec for spec in TOPICS}


def retention_days(spec: TopicSpec, settings: Settings | None = None) -> int:
    """Days for which a topic that is not compacted keeps its records: the query log's are a setting."""
    if spec.topic is Topic.QUERIES and settings is not None:
        return settings.querylog.retention_days
    return spec.retention_days if spec.retention_days is not None else 7


def configuration_of(spec: TopicSpec, settings: Settings | None = None) -> dict[str, str]:
    """Broker settings of a topic."""
    shared = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(MAX_RECORD_BYTES)}
    if spec.compacted:
        return shared | {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "max.compaction.lag.ms": str(COMPACTION_LAG_MS),
            "segment.ms": str(COMPACTION_LAG_MS // 4),
            "delete.retention.ms": str(TOMBSTONE_MS),
        }
    days = retention_days(spec, settings)
    return shared | {
        "cleanup.policy": "delete",
        "retention.ms": str(days * DAY_MS),
        "segment.ms": str(max(DAY_MS // 4, days * DAY_MS // 30)),
    }


@contextmanager
def administrator(settings: Settings) -> Iterator[KafkaAdminClient]:
    """An administrative client for the block. Raises BusUnavailable when no broker answers."""
    try:
        client = KafkaAdminClient(**common(settings, "admin"))
    except kafka_errors.KafkaError as error:
        raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
    try:
        yield client
    except kafka_errors.KafkaError as error:
        raise translated(error, "administrative request") from error
    finally:
        client.close()


def ensure_topics(settings: Settings) -> list[str]:
    """Create the missing topics, and give the query log the retention of the settings; the names created.

    Raises ConfigError when an existing topic has another partition count than the settings say: documents would
    change their partition, and with it their order and their owner.
    """
    wanted = {spec.topic.physical(settings.namespace): spec for spec in TOPICS}
    with administrator(settings) as admin:
        existing = _partition_counts(admin, list(wanted))
        missing = {name: spec for name, spec in wanted.items() if name not in existing}
        if missing:
            _create(admin, missing, settings)
            existing = _partition_counts(admin, list(wanted))
        _keep_for(admin, Topic.QUERIES.physical(settings.namespace), settings)
    for name, spec in wanted.items():
        _check_count(name, existing.get(name, 0), partitions_of(spec, settings))
    return sorted(missing)


def _keep_for(admin: KafkaAdminClient, name: str, settings: Settings) -> None:
    """Set the query log's retention where the broker has another one: texts must not stay for longer than is said."""
    wanted = {k: v for k, v in configuration_of(spec_of(Topic.QUERIES), settings).items() if k.endswith(".ms")}
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)]).get("topic", {}).get(name, {})
    changed = {k: v for k, v in wanted.items() if str(found.get(k, {}).get("value")) != v}
    if changed:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=changed)])


def _create(admin: KafkaAdminClient, missing: dict[str, TopicSpec], settings: Settings) -> None:
    topics = {
        name: {
            "num_partitions": partitions_of(spec, settings),
            "replication_factor": settings.kafka.replication,
            "configs": configuration_of(spec, settings),
        }
        for name, spec in missing.items()
    }
    try:
        admin.create_topics(topics)
    except kafka_errors.TopicAlreadyExistsError:
        # Another process was faster; those not yet there are created one by one.
        for name, options in topics.items():
            try:
                admin.create_topics({name: options})
            except kafka_errors.TopicAlreadyExistsError:
                continue
    except kafka_errors.InvalidReplicationFactorError as error:
        raise ConfigError(
            "kafka.replication",
            f"{settings.kafka.replication} copies are not possible",
            "Start as many brokers or lower it.",
        ) from error
    admin.wait_for_topics(list(missing), timeout_ms=15_000)


def _check_count(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ConfigError(
            "kafka.partitions",
            f"topic {name} has {found} partitions, the settings say {wanted}",
            "The number is fixed for the log's life: set it back, or start a new namespace and reload the sources.",
        )


def _partition_counts(admin: KafkaAdminClient, names: list[str]) -> dict[str, int]:
    found = {}
    for topic in admin.describe_topics(names):
        if topic.get("error_code", 0) == 0 and topic.get("partitions"):
            found[str(topic["name"])] = len(topic["partitions"])
    return found


def describe_topics(settings: Settings) -> list[TopicDescription]:
    """The project's topics that exist, with the configuration that differs from the broker's defaults."""
    names = {spec.topic.physical(settings.namespace): spec for spec in TOPICS}
    with administrator(settings) as admin:
        found = {str(t["name"]): t for t in admin.describe_topics(list(names)) if t.get("error_code", 0) == 0}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in found]
        configs = admin.describe_configs(resources).get("topic", {}) if resources else {}
    return [
        TopicDescription(
            topic=names[name].topic,
            name=name,
            partitions=len(topic["partitions"]),
            replication=min((len(p["replica_nodes"]) for p in topic["partitions"]), default=0),
            description=names[name].description,
            configuration={k: str(v.get("value")) for k, v in configs.get(name, {}).items()},
        )
        for name, topic in sorted(found.items())
    ]


def delete_topics(settings: Settings) -> list[str]:
    """Delete the project's topics of this namespace (tests, and the removal of an installation); the names."""
    names = [spec.topic.physical(settings.namespace) for spec in TOPICS]
    with administrator(settings) as admin:
        existing = sorted(_partition_counts(admin, names))
        if existing:
            admin.delete_topics(existing)
    return existing
