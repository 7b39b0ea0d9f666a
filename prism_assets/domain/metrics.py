"""All metrics as data: `/metrics`, OTLP, docs/metrics.md, alert rules and the dashboard are held to this list.

Names follow the conventions of Prometheus: base units, and `_total` for counters. Labels have few values: the tables,
the checks and findings of docs/operate.md, and short fixed lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    """Grows from the start of the process."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Counts by size, from the start of the process."""


class Source(str, Enum):
    """The command that serves a metric."""

    WORKER = "prism worker"
    EXPORTER = "prism exporter"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    help: str
    source: Source
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """A value of a counter or a gauge. `labels` are the values of the labels of the metric, in order."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """The value of a histogram: counts up to each bound, not cumulative, and last the count above all bounds."""

    name: str
    counts: tuple[int, ...]
    total: float
    labels: tuple[str, ...] = ()


Measured = Sample | Distribution


def group_by_name(measured: Iterable[Measured]) -> dict[str, list[Measured]]:
    """Returns the values of each metric that has some."""
    found: dict[str, list[Measured]] = {}
    for item in measured:
        found.setdefault(item.name, []).append(item)
    return found


MOST_TABLES = 1_000
"""Tables with metrics of the exporter: the first by name. `prism_exporter_tables_left_out` counts the others."""
LATENCY_BOUNDS = (1, 2, 5, 10, 30, 60, 120, 300, 900, 3_600)
"""The bounds of `prism_table_latency_seconds`, in seconds."""
WORKER_STEPS = ("beat", "intake", "upkeep", "convert")
"""The parts of a worker's turn, as values of `step`."""


def _worker(name: str, help: str, kind: Kind = Kind.COUNTER, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name=f"prism_worker_{name}", kind=kind, help=help, source=Source.WORKER, labels=labels)


def _table(name: str, help: str, kind: Kind = Kind.GAUGE, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name=f"prism_table_{name}", kind=kind, help=help, source=Source.EXPORTER, labels=("table", *labels))


def _lake(name: str, help: str, kind: Kind = Kind.GAUGE, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name=f"prism_{name}", kind=kind, help=help, source=Source.EXPORTER, labels=labels)


METRICS: Sequence[Metric] = (
    _table("pending_objects", "Objects that wait for a batch."),
    _table("pending_bytes", "Bytes of the objects that wait for a batch."),
    _table("claimed_objects", "Objects that a batch converts now."),
    _table("given_up_objects", "Objects given up, until a person decides."),
    _table("lag_seconds", "Age of the oldest object without rows, without a history; 0 where none waits."),
    _table("last_rows_timestamp_seconds", "Time of the last conversion with rows."),
    _table("freshness_limit_seconds", "freshness.fail of the table file."),
    _table("objects_total", "Converted objects.", Kind.COUNTER),
    _table("object_bytes_total", "Bytes of converted objects, as they lay in S3.", Kind.COUNTER),
    _table("lines_total", "Lines of converted objects.", Kind.COUNTER),
    _table("rows_total", "Rows of converted objects.", Kind.COUNTER),
    _table("quarantined_lines_total", "Lines set aside in quarantine.", Kind.COUNTER),
    _table("filtered_lines_total", "Lines left out by `where`, retention or tombstones.", Kind.COUNTER),
    _table(
        "latency_seconds",
        "Time from the arrival of an object in S3 to the commit of its rows, without a history.",
        Kind.HISTOGRAM,
    ),
    _table("merges_due", "Merges that wait for a run."),
    _table("merge_due_seconds", "Time for which the oldest due merge waits; 0 where none does."),
    _table("merges_running", "Merges at work."),
    _table("merges_parked", "Merges that failed too often."),
    _table("merged_rows_total", "Rows written by merges.", Kind.COUNTER),
    _table("merged_bytes_total", "Bytes written by merges.", Kind.COUNTER),
    _table("topic_lag_seconds", "Longest wait of a message in a topic of Kafka."),
    _table("topic_lag_offsets", "Offsets from the positions to the ends of the topics."),
    _table("stopped_partitions", "Partitions of topics that wait for a person; of a stopped topic, all."),
    _lake("findings", "Findings of `prism status`.", labels=("table", "kind", "acts")),
    _lake("check_failed", "1 where a check fails, else 0.", labels=("table", "check", "severity")),
    _lake("workers", "Live workers: alive, or silent for 15 seconds.", labels=("state",)),
    _lake("live_tables", "Tables in the hands of a live worker."),
    _lake("batches_running", "Batches at work, or silent for longer than their lease.", labels=("state",)),
    _lake("step_runs_total", "Ended batches and merges.", Kind.COUNTER, ("step", "outcome")),
    _lake("step_seconds_total", "Time of ended batches and merges.", Kind.COUNTER, ("step",)),
    _lake("exporter_up", "1 where the last look at PostgreSQL succeeded, else 0.", labels=("look",)),
    _lake("exporter_look_seconds", "Time that the last look took.", labels=("look",)),
    _lake("exporter_last_look_timestamp_seconds", "Time of the last look that succeeded.", labels=("look",)),
    _lake("exporter_tables", "Tables with metrics."),
    _lake("exporter_tables_left_out", "Tables without metrics, because there are too many."),
    _worker("turns_total", "Turns without an error."),
    _worker("failed_turns_total", "Turns ended by an error."),
    _worker("registered_objects_total", "Objects registered from messages and listings."),
    _worker("batches_total", "Committed batches."),
    _worker("lost_batches_total", "Batches that lost their lease and changed nothing."),
    _worker("leases_lost_total", "Tables that the worker lost, because it was silent for 15 seconds."),
    _worker("reclaimed_objects_total", "Objects of dead batches, taken over."),
    _worker("objects_total", "Converted objects."),
    _worker("rows_total", "Rows of converted objects."),
    _worker("quarantined_lines_total", "Lines set aside in quarantine."),
    _worker("child_deaths_total", "Child processes that died at their work."),
    _worker("spooled_messages_total", "Messages of topics committed with their offsets."),
    _worker("spool_objects_total", "Committed spool objects."),
    _worker("spool_bytes_total", "Bytes of committed spool objects."),
    _worker("spool_failures_total", "Failed flushes and looks at brokers."),
    _worker("steps_total", "Parts of turns.", labels=("step",)),
    _worker("step_seconds_total", "Time in the parts of turns.", labels=("step",)),
    _worker("tables", "Tables held by this worker.", Kind.GAUGE),
    _worker("partitions", "Partitions of topics read by this worker.", Kind.GAUGE),
    _worker("lag_offsets", "Offsets from their positions to their last stable offsets.", Kind.GAUGE),
    _worker("slow_batch_seconds", "Time of the running batch of large objects.", Kind.GAUGE),
    _worker("silent_seconds", "Time since the last turn without an error.", Kind.GAUGE),
    Metric(
        name="prism_requests_total",
        kind=Kind.COUNTER,
        help="Calls to services of AWS by boto3, without S3.",
        source=Source.WORKER,
        labels=("service", "outcome"),
    ),
)

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def series_of(metric: Metric) -> tuple[str, ...]:
    """Returns the names under which Prometheus stores the values of a metric."""
    if metric.kind is Kind.HISTOGRAM:
        return tuple(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
    return (metric.name,)
