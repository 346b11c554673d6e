"""Metric names, the process's registry, and logging.

The list of metrics is closed: a name that is not in ``METRICS`` is an error, so dashboards and tests can rely on it.
Lag is measured where it ends, from the clocks that an event carries (invariant 10).
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Kind = Literal["counter", "gauge", "histogram"]

_SECONDS = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


@dataclass(frozen=True)
class Metric:
    """One metric: its kind, its labels, what it means. Times are in seconds."""

    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


METRICS: dict[str, Metric] = {
    # consumers
    "headwater_records_total": Metric("counter", ("lane", "topic"), "Records read from the log."),
    "headwater_outcomes_total": Metric(
        "counter", ("lane", "outcome"), "Receipts by outcome: what became of events."
    ),
    "headwater_event_lag_seconds": Metric(
        "histogram", ("lane", "priority"), "Append of an event to its visibility in the store.", _SECONDS
    ),
    "headwater_source_lag_seconds": Metric(
        "histogram", ("lane", "source"), "Change at the source to its visibility in the store.", _SECONDS
    ),
    "headwater_stage_seconds": Metric(
        "histogram", ("lane", "stage"), "Time spent in a stage by one event or batch.", _SECONDS
    ),
    "headwater_retries_total": Metric(
        "counter", ("lane", "kind"), "Infrastructure failures that held a partition, by exception."
    ),
    "headwater_holding": Metric("gauge", ("lane",), "1 while the lane waits for infrastructure to return."),
    "headwater_dead_letters_total": Metric(
        "counter", ("lane", "stage", "kind"), "Records that could not be processed."
    ),
    "headwater_closed_total": Metric(
        "counter", ("lane", "kind"), "Alarm: access or membership payloads not understood, hence nobody."
    ),
    "headwater_unhandled_undecodable_total": Metric(
        "counter", ("lane", "kind"), "Alarm: records of the access lane that name nothing that could be closed."
    ),
    "headwater_parked_sources": Metric("gauge", ("lane",), "Sources whose content mostly fails."),
    "headwater_late_writes_total": Metric(
        "counter", ("lane",), "Store writes that ended after the lease; a recheck was asked for."
    ),
    "headwater_rechecks_total": Metric("counter", ("lane",), "Documents compared with the log again."),
    "headwater_store_returns_total": Metric("counter", (), "Times that the store was there again, or at the start."),
    "headwater_deletes_verified_total": Metric("counter", (), "Recent deletes verified after a return of the store."),
    "headwater_deletes_undone_total": Metric("counter", (), "Of these: found undone, and carried out again."),
    "headwater_partitions_owned": Metric("gauge", ("lane",), "Partitions that this process owns."),
    "headwater_rebalances_total": Metric("counter", ("lane", "how"), "Partitions given up: in order or lost."),
    "headwater_backlog_records": Metric(
        "gauge", ("lane", "topic", "partition"), "End of the partition minus the applied offset."
    ),
    "headwater_applied_offset": Metric(
        "gauge", ("lane", "topic", "partition"), "Next offset to apply, as in the progress record."
    ),
    "headwater_lease_seconds": Metric("gauge", ("lane",), "Seconds left of the lease, by the newest heartbeat."),
    "headwater_extracted_total": Metric("counter", ("media", "outcome"), "Documents read: 'ok' or the fault."),
    "headwater_extract_seconds": Metric(
        "histogram", ("media",), "Reading of a document in a child process.", _SECONDS
    ),
    "headwater_chunks_embedded_total": Metric("counter", ("generation",), "Chunks sent to the encoder."),
    "headwater_chunks_reused_total": Metric("counter", ("generation",), "Chunks whose vector was reused."),
    "headwater_chunks_written_total": Metric("counter", ("generation",), "Chunks written to the store."),
    "headwater_chunks_removed_total": Metric("counter", ("generation",), "Chunks removed from the store."),
    "headwater_embed_tokens_total": Metric("counter", ("endpoint",), "Tokens that an embedding endpoint read."),
    "headwater_embed_cost_total": Metric(
        "counter", ("endpoint", "currency"), "Their price, by the configured price of a million tokens."
    ),
    "headwater_embed_retries_total": Metric(
        "counter", ("endpoint", "kind"), "Requests to an embedding endpoint that were repeated."
    ),
    # sources
    "headwater_appended_total": Metric("counter", ("source", "topic"), "Events appended by the owner."),
    "headwater_bodies_removed_total": Metric("counter", ("source",), "Superseded bodies removed from their store."),
    "headwater_transactions_total": Metric("counter", ("result",), "Transactions: committed, aborted, expired."),
    "headwater_poll_age_seconds": Metric("gauge", ("source",), "Age of the last complete look at the source."),
    "headwater_source_errors_total": Metric("counter", ("source", "kind"), "Failed looks at a source."),
    "headwater_source_state": Metric("gauge", ("source", "state"), "1 for the state in which the owner is."),
    "headwater_source_documents": Metric("gauge", ("source",), "Live documents."),
    "headwater_source_backlog": Metric("gauge", ("source",), "Events that the index has not applied."),
    "headwater_source_listed_timestamp": Metric(
        "gauge", ("source",), "End of the last complete listing, seconds since 1970; 0 before it."
    ),
    "headwater_source_requests": Metric("gauge", ("source",), "Requests to the system since the owner began."),
    "headwater_source_failures": Metric("gauge", ("source",), "Of which failed."),
    "headwater_source_limited": Metric("gauge", ("source",), "Times that the system asked for patience."),
    "headwater_source_limited_seconds": Metric("gauge", ("source",), "Seconds for which it is to be left alone."),
    # query service
    "headwater_requests_total": Metric("counter", ("route", "status"), "HTTP requests by route and status."),
    "headwater_request_seconds": Metric("histogram", ("route",), "Duration of HTTP requests.", _SECONDS),
    "headwater_search_stage_seconds": Metric("histogram", ("stage",), "Duration of a stage of a search.", _SECONDS),
    "headwater_refused_candidates_total": Metric(
        "counter", ("reason",), "Candidates refused by admission, by reason."
    ),
    "headwater_searches_waiting": Metric("gauge", (), "Searches that wait for their turn."),
    "headwater_refills_total": Metric("counter", (), "Searches repeated wider because admission left too few."),
    "headwater_repairs_total": Metric("counter", (), "Documents searched once more because a manifest moved on."),
    "headwater_starved_total": Metric("counter", (), "Searches that ended with fewer hits than asked for."),
    "headwater_support_total": Metric("counter", ("outcome",), "Sentences of answers that were checked, by verdict."),
    "headwater_query_log_total": Metric(
        "counter", ("result",), "Records of the query log: sent, dropped (queue full), lost (at stop), refused."
    ),
    "headwater_query_log_waiting": Metric("gauge", (), "Records that wait for the log."),
    "headwater_query_log_unreadable_total": Metric("counter", (), "Records of the query log that were not understood."),
    "headwater_feedback_total": Metric("counter", ("verdict",), "Feedback by verdict."),
    "headwater_forbidden_reports_total": Metric(
        "counter", (), "Persons who say that they should not see what they were shown: look at each at once."
    ),
    "headwater_generator_requests_total": Metric(
        "counter", ("model", "outcome"), "Requests to the generator: answered, repeated, failed."
    ),
    "headwater_generator_seconds": Metric(
        "histogram", ("model",), "Duration of a request to the generator; of a stream, until it opens.", _SECONDS
    ),
    "headwater_generator_tokens_total": Metric("counter", ("model", "kind"), "Tokens that it read and wrote."),
    "headwater_generator_cost_total": Metric(
        "counter", ("model", "currency"), "Their price, by the configured prices of a million tokens."
    ),
    "headwater_expansions_total": Metric(
        "counter", ("kind", "outcome"), "Expanded searches: whole, or with less than was asked for."
    ),
    "headwater_cache_total": Metric(
        "counter", ("cache", "outcome"), "Looks into what is kept: hit, miss; dropped or refused: not served, not kept."
    ),
    "headwater_cache_entries": Metric("gauge", ("cache",), "What is kept."),
    "headwater_cache_bytes": Metric("gauge", ("cache",), "Its size."),
    "headwater_budget_refusals_total": Metric("counter", ("kind",), "Calls of a generator that a limit did not allow."),
    "headwater_answers_total": Metric(
        "counter", ("kind", "refused", "cached", "fallback"), "Answers and refusals, by reason; why none was generated."
    ),
    "headwater_answer_seconds": Metric("histogram", ("kind",), "Duration of an answer.", _SECONDS),
    "headwater_answer_sentences_total": Metric("counter", ("outcome",), "Sentences, released or withheld."),
    "headwater_ready": Metric("gauge", (), "1 while the query service may answer."),
    "headwater_tail_age_seconds": Metric("gauge", ("topic",), "Age of the query service's own tail."),
    "headwater_inference_batch_items": Metric(
        "histogram", ("lane",), "Queries, pairs or requests in one call of a model.", (1, 2, 4, 8, 16, 32, 64)
    ),
    "headwater_inference_wait_seconds": Metric("histogram", ("lane",), "Waiting for a model's turn.", _SECONDS),
    "headwater_inference_refused_total": Metric(
        "counter", ("lane", "reason"), "Items that no model saw: full, late or cancelled."
    ),
    "headwater_circuit_open": Metric("gauge", ("server",), "1 while a model's server is left alone after failures."),
    "headwater_rerank_total": Metric("counter", ("mode", "outcome"), "Rerankings by what came of them."),
    "headwater_rerank_pairs_total": Metric("counter", (), "Passages that a reranker scored for a reply."),
    "headwater_rerank_seconds": Metric("histogram", ("mode",), "Duration of a reranking.", _SECONDS),
    # canary
    "headwater_canary_seconds": Metric(
        "histogram", ("step",), "Canary: append to found, to hidden by revocation, to gone by deletion.", _SECONDS
    ),
    "headwater_canary_failures_total": Metric("counter", ("step",), "Canary steps that exceeded their bound."),
    "headwater_canary_last_success": Metric("gauge", (), "Time of the last whole canary round, seconds since 1970."),
}  # fmt: skip


class Metrics:
    """Counters, gauges and histograms of one process; created on first use of each name."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = registry if registry is not None else CollectorRegistry()
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        self._lock = threading.Lock()

    def _get(self, name: str, kind: Kind) -> Counter | Gauge | Histogram:
        metric = METRICS.get(name)
        if metric is None or metric.kind != kind:
            raise KeyError(f"{name} is not a {kind} of pipeline.observe.METRICS; add it there with its meaning")
        made = self._made.get(name)
        if made is None:
            with self._lock:
                made = self._made.get(name) or self._make(name, metric)
                self._made[name] = made
        return made

    def _make(self, name: str, metric: Metric) -> Counter | Gauge | Histogram:
        from prometheus_client import Counter, Gauge, Histogram

        if metric.kind == "counter":
            return Counter(name, metric.meaning, metric.labels, registry=self.registry)
        if metric.kind == "gauge":
            return Gauge(name, metric.meaning, metric.labels, registry=self.registry)
        return Histogram(name, metric.meaning, metric.labels, registry=self.registry, buckets=metric.buckets)

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        counter = self._get(name, "counter")
        (counter.labels(**labels) if labels else counter).inc(value)  # type: ignore[union-attr]

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._get(name, "gauge")
        (gauge.labels(**labels) if labels else gauge).set(value)  # type: ignore[union-attr]

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value (seconds, never below 0) to a histogram."""
        histogram = self._get(name, "histogram")
        (histogram.labels(**labels) if labels else histogram).observe(max(0.0, value))  # type: ignore[union-attr]

    def value(self, name: str, **labels: str) -> float:
        """Current value of a counter or gauge, 0 where nothing was recorded; for health pages and tests."""
        sample = name if METRICS[name].kind == "gauge" else name.removesuffix("_total") + "_total"
        found = self.registry.get_sample_value(sample, labels)
        return float(found) if found is not None else 0.0

    def render(self) -> bytes:
        """Prometheus text exposition."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


_process: Metrics | None = None
_process_lock = threading.Lock()


def metrics() -> Metrics:
    """The metrics of this process, made on the first call."""
    global _process
    with _process_lock:
        if _process is None:
            _process = Metrics()
        return _process


class JsonFormatter(logging.Formatter):
    """One line of JSON a record: time, level, process, logger, message, fields given by ``extra={"fields": …}``."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a newline inside."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update({str(k): v for k, v in fields.items() if k not in line})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logging(process: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all logs to standard error as one-line JSON. Called once by each process's main function."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("httpx", "httpcore", "urllib3", "asyncio", "grpc", "weaviate", "watchdog"):
        logging.getLogger(name).setLevel(logging.WARNING)
    quiet_kafka()


def quiet_kafka() -> None:
    """The client logs an error for each refused connection; what matters reaches us as an exception."""
    logging.getLogger("kafka").setLevel(logging.ERROR)
    for name in ("kafka.net", "kafka.cluster", "kafka.coordinator", "kafka.consumer", "kafka.producer"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)
