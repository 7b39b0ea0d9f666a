"""The present state of the tables, as metrics: about ten statements for all tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection

from prism_assets.domain.metrics import Sample
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import leases
from prism_assets.metadata.files import merge_figures
from prism_assets.metadata.files.merge_figures import TableMergeQueue
from prism_assets.metadata.intake import intake_figures
from prism_assets.metadata.intake.intake_figures import Unfinished
from prism_assets.metadata.kafka.lag import TopicLag, load_lags
from prism_assets.stages.exporter.last_rows import LastRows
from prism_assets.stages.findings.topics import topic_tables
from prism_assets.stages.live.holdings import LIVE_SECONDS, live_tables


def measure_present(
    connection: Connection, tables: Sequence[TableDefinition], lease_seconds: float, rows: LastRows
) -> Iterator[Sample]:
    """Yields the gauges of all tables, of live workers and of batches.

    Tables with streams have every gauge, also at 0, so that alerts clear and sums are whole.
    """
    ids = [table.table_id for table in tables]
    names = {table.table_id: str(table.name) for table in tables}
    unfinished = {item.table_id: item for item in intake_figures.count_unfinished_by_age(connection, ids)}
    given_up = intake_figures.count_given_up(connection, ids)
    queues = {item.table_id: item for item in merge_figures.count_jobs(connection, ids)}
    for table in tables:
        number, name = table.table_id, names[table.table_id]
        if table.join is None:
            yield from _intake(name, unfinished.get(number), given_up.get(number, 0))
        yield from _merges(name, queues.get(number))
    for number, time in rows.look(connection, ids).items():
        yield Sample("prism_table_last_rows_timestamp_seconds", time.timestamp(), (names[number],))
    with_topics = topic_tables(tables)
    yield from _topics(names, load_lags(connection, with_topics) if with_topics else ())
    yield from _workers(connection, lease_seconds)


def _intake(name: str, found: Unfinished | None, given_up: int) -> Iterator[Sample]:
    yield Sample("prism_table_pending_objects", found.pending if found else 0, (name,))
    yield Sample("prism_table_pending_bytes", found.pending_bytes if found else 0, (name,))
    yield Sample("prism_table_claimed_objects", found.claimed if found else 0, (name,))
    yield Sample("prism_table_lag_seconds", found.oldest_seconds if found else 0, (name,))
    yield Sample("prism_table_given_up_objects", given_up, (name,))


def _merges(name: str, queue: TableMergeQueue | None) -> Iterator[Sample]:
    yield Sample("prism_table_merges_due", queue.due if queue else 0, (name,))
    yield Sample("prism_table_merge_due_seconds", queue.due_seconds if queue else 0, (name,))
    yield Sample("prism_table_merges_running", queue.running if queue else 0, (name,))
    yield Sample("prism_table_merges_parked", queue.parked if queue else 0, (name,))


def _topics(names: Mapping[int, str], topics: Sequence[TopicLag]) -> Iterator[Sample]:
    """Yields one value for each table, however many topics it reads."""
    for number in sorted({topic.table_id for topic in topics}):
        own = [topic for topic in topics if topic.table_id == number]
        seconds = [topic.lag_seconds for topic in own if topic.lag_seconds is not None]
        if seconds:
            yield Sample("prism_table_topic_lag_seconds", max(seconds), (names[number],))
        yield Sample("prism_table_topic_lag_offsets", sum(topic.lag_offsets for topic in own), (names[number],))
        yield Sample("prism_table_stopped_partitions", sum(map(_stopped, own)), (names[number],))


def _stopped(topic: TopicLag) -> int:
    if topic.last_error is not None:
        return max(1, len(topic.partitions))
    return sum(partition.is_stopped for partition in topic.partitions)


def _workers(connection: Connection, lease_seconds: float) -> Iterator[Sample]:
    silences = [one.holder.silent_seconds for one in leases.load_presences(connection).values()]
    alive = sum(seconds < LIVE_SECONDS for seconds in silences)
    batches = intake_figures.count_running(connection, lease_seconds)
    yield Sample("prism_workers", alive, ("alive",))
    yield Sample("prism_workers", len(silences) - alive, ("silent",))
    yield Sample("prism_live_tables", len(live_tables(connection)))
    yield Sample("prism_batches_running", batches.alive, ("alive",))
    yield Sample("prism_batches_running", batches.silent, ("silent",))
