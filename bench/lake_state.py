"""Fills databases by SQL with the state of a lake that has run for long: partitions, objects and runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from dagster import AssetMaterialization, DagsterInstance, DagsterRun, DagsterRunStatus
from sqlalchemy import text

from prism_assets.defs.keys import STAGE_TAG, Stage, asset_key
from prism_assets.stages.context import StageContext

_TABLE = """\
schema: {schema}
table: {table}
description: a table of the scale benchmark
owner: team:bench
streams:
  - {{name: {table}, url: "s3://prism-staging/{schema}/{table}/"}}
partition: {{column: time}}
columns:
  - {{name: time, type: timestamp, required: true}}
  - {{name: id, type: bigint}}
{columns}merge: {{interval: 3600}}
"""
_MORE_COLUMNS = 18
_TABLES_IN_A_RUN = 30


@dataclass(frozen=True)
class LakeSize:
    """The size of the state: `tables` in `schemas`, with `days` of partitions and `objects` small objects each.

    Each of the last two days of a table, which are not merged, has `open_objects` instead, if given.

    Dagster knows `runs` finished runs, and for the last `shown_days` a materialisation of each stage and table.
    """

    tables: int
    schemas: int
    days: int
    objects: int
    runs: int
    shown_days: int
    open_objects: int | None = None

    def names(self) -> list[str]:
        """Returns `schema.table` of all tables."""
        return [f"s{number % self.schemas:02}.t{number:03}" for number in range(self.tables)]


def write_table_files(folder: Path, size: LakeSize) -> None:
    """One file a table, with twenty columns."""
    folder.mkdir()
    columns = "".join(f"  - {{name: c{number:02}, type: string, length: 100}}\n" for number in range(_MORE_COLUMNS))
    for name in size.names():
        schema, _, table = name.partition(".")
        (folder / f"{name}.yaml").write_text(_TABLE.format(schema=schema, table=table, columns=columns))


def fill_lake(context: StageContext, size: LakeSize, today: date) -> int:
    """Inserts partitions at rest: all before yesterday switched, yesterday closed, today open. Returns how many.

    The ids of a day are consecutive, so that each statement can compute its references.
    """
    values = {
        "days": size.days,
        "objects": size.objects,
        "open_objects": size.objects if size.open_objects is None else size.open_objects,
        "today": today,
        "now": datetime.now(timezone.utc),
    }
    with context.database.begin() as connection:
        for statement in _LAKE:
            connection.execute(text(statement), values)
        return int(connection.execute(text("SELECT count(*) FROM prism_partitions")).scalar_one())


_LAKE = (
    "UPDATE prism_table_publications p SET defined_version = t.definition_version FROM prism_tables t "
    "WHERE t.prism_table_id = p.prism_table_id",
    "CREATE TEMPORARY TABLE lake ON COMMIT DROP AS SELECT l.*, last - count AS first FROM (SELECT d.*, "
    "CAST(sum(count) OVER (ORDER BY partition_id) AS bigint) AS last FROM ("
    "SELECT prism_table_id AS table_id, prism_stream_id AS stream_id, "
    "CAST(:today AS date) - (:days - 1 - d) AS day, row_number() OVER (ORDER BY prism_table_id, d) AS partition_id, "
    "d AS number, CASE WHEN d < :days - 2 THEN :objects ELSE :open_objects END AS count "
    "FROM prism_tables t JOIN prism_streams s USING (prism_table_id), generate_series(0, :days - 1) d) d) l",
    "INSERT INTO prism_stream_batches (start_time, heartbeat_time, finish_time, state, worker) "
    "VALUES (:now, :now, :now, 'done', 'bench')",
    "INSERT INTO prism_staging_objects (prism_staging_object_id, prism_stream_id, prism_table_id, bucket_name, "
    "object_key, content_length, first_receive_time, state, first_batch_id, finish_time, lines_in, rows_out, "
    "rows_quarantined) OVERRIDING SYSTEM VALUE SELECT first + n, stream_id, table_id, "
    "'prism-staging', table_id || '/' || day || '/' || n, 50000, :now, 'done', 1, :now, 200, 200, 0 "
    "FROM lake, generate_series(1, count) n",
    "INSERT INTO prism_partitions (prism_partition_id, prism_table_id, partition_date, desired_manifest_version, "
    "last_live_object_id, switched, closing_batch_id, last_object_id) OVERRIDING SYSTEM VALUE "
    "SELECT partition_id, table_id, day, CASE WHEN number < :days - 2 THEN last ELSE 0 END, "
    "CASE WHEN number < :days - 1 THEN last END, number < :days - 2, "
    "CASE WHEN number < :days - 1 THEN 1 END, last FROM lake",
    "INSERT INTO prism_publications (prism_partition_id, publisher, version, published_object_id, revision, dirty, "
    "publish_time) SELECT partition_id, 'glue', CASE WHEN number < :days - 2 THEN last ELSE 0 END, "
    "CASE WHEN number < :days - 1 THEN last ELSE 0 END, 0, false, :now FROM lake",
    "INSERT INTO prism_small_objects (prism_small_object_id, prism_staging_object_id, prism_partition_id, delayed, "
    "content_length, upload_start_time, row_count, min_time, max_time, fingerprint, definition_version) "
    "OVERRIDING SYSTEM VALUE "
    "SELECT first + n, first + n, partition_id, false, 20000, :now, "
    "200, day, day, n, 1 FROM lake, generate_series(1, count) n",
    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
    "fingerprint, create_time, update_time) SELECT partition_id, NULL, 0, 0, 0, 0, :now, :now FROM lake "
    "WHERE number < :days - 2",
    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
    "fingerprint, create_time, update_time, definition_version) SELECT partition_id, 0, last, "
    "20000 * count, 200 * count, 0, :now, :now, 1 FROM lake WHERE number < :days - 2",
    "INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time) "
    "SELECT partition_id, CAST(:now AS timestamptz) + interval '1 hour' FROM lake WHERE number >= :days - 2",
    "SELECT setval(pg_get_serial_sequence('prism_partitions', 'prism_partition_id'), max(partition_id)), "
    "setval(pg_get_serial_sequence('prism_small_objects', 'prism_small_object_id'), max(last)), "
    "setval(pg_get_serial_sequence('prism_staging_objects', 'prism_staging_object_id'), max(last)) "
    "FROM lake",
)  # fmt: skip


def analyze(context: StageContext) -> None:
    """Refreshes PostgreSQL's statistics, as autovacuum does in time."""
    with context.database.begin() as connection:
        connection.execute(text("ANALYZE"))


def end_all_work(context: StageContext) -> None:
    """Leaves the catalog nothing to do: yesterday is merged and switched, and Glue has every table, just compared."""
    with context.database.begin() as connection:
        for statement in _REST:
            connection.execute(text(statement), {"now": datetime.now(timezone.utc)})
    for table in context.choose_tables(None):
        context.publisher.define(table)
    with context.database.begin() as connection:
        connection.execute(text("UPDATE prism_table_publications SET compared_time = clock_timestamp()"))


_CLOSED = "NOT switched AND last_live_object_id > 0"
_REST = (
    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
    f"fingerprint, create_time, update_time) SELECT prism_partition_id, NULL, 0, 0, 0, 0, :now, :now "
    f"FROM prism_partitions WHERE {_CLOSED}",
    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
    "fingerprint, create_time, update_time, definition_version) SELECT prism_partition_id, 0, last_object_id, 60000, "
    f"600, 0, :now, :now, 1 FROM prism_partitions WHERE {_CLOSED}",
    "UPDATE prism_publications q SET version = p.last_object_id, published_object_id = p.last_object_id "
    f"FROM prism_partitions p WHERE p.prism_partition_id = q.prism_partition_id AND {_CLOSED}",
    f"UPDATE prism_partitions SET desired_manifest_version = last_object_id, switched = true WHERE {_CLOSED}",
    "UPDATE prism_publications SET dirty = false WHERE dirty",
)


def forget_open_days(context: StageContext) -> None:
    """Makes today the first publication of a day that the catalog has to show. No list is written for it."""
    with context.database.begin() as connection:
        connection.execute(text(_FORGET))


_FORGET = (
    "UPDATE prism_publications q SET version = -1, published_object_id = 0, dirty = true FROM prism_partitions p "
    "WHERE p.prism_partition_id = q.prism_partition_id AND p.last_live_object_id IS NULL"
)


def make_work(context: StageContext) -> None:
    """Gives every table a pending object and due merge jobs."""
    with context.database.begin() as connection:
        for statement in _WORK:
            connection.execute(text(statement), {"now": datetime.now(timezone.utc)})


_WORK = (
    "INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length, "
    "first_receive_time) SELECT prism_stream_id, prism_table_id, 'prism-staging', 'new/' || prism_stream_id, 50000, "
    ":now FROM prism_streams",
    "UPDATE prism_merge_jobs SET schedule_time = CAST(:now AS timestamptz) - interval '1 minute'",
)


def fill_history(instance: DagsterInstance, size: LakeSize, today: date) -> tuple[int, int]:
    """Adds finished runs and materialisations to Dagster's storage. Returns the numbers of both.

    Dagster records today's event of each asset; SQL copies it to earlier days.
    """
    for run in _finished_runs(size):
        instance.add_run(run)
    keys = [asset_key(name, stage.value) for name in size.names() for stage in Stage]
    for key in keys:
        facts: dict[str, Any] = {
            "dagster/partition_row_count": 200 * size.objects,
            "rows added": 200,
            "objects added": 1,
        }
        instance.report_runless_asset_event(AssetMaterialization(key, partition=today.isoformat(), metadata=facts))
    days = [(today - timedelta(days=back)).isoformat() for back in range(1, size.shown_days)]
    _copy_events(instance, today.isoformat(), days)
    return size.runs, len(keys) * (1 + len(days))


def _finished_runs(size: LakeSize) -> Iterator[DagsterRun]:
    names = size.names()
    for number in range(size.runs):
        stage = list(Stage)[number % 3]
        chosen = [names[(number + offset) % len(names)] for offset in range(min(_TABLES_IN_A_RUN, len(names)))]
        yield DagsterRun(
            job_name="__ASSET_JOB",
            status=DagsterRunStatus.SUCCESS,
            tags={STAGE_TAG: stage.value},
            asset_selection=frozenset(asset_key(name, stage.value) for name in chosen),
        )


def _copy_events(instance: DagsterInstance, today: str, days: Sequence[str]) -> None:
    statement = (
        "INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition) "
        "SELECT run_id, replace(event, :today, w.day), dagster_event_type, timestamp, step_key, asset_key, w.day "
        "FROM event_logs, unnest(CAST(:days AS text[])) AS w (day) "
        "WHERE dagster_event_type = 'ASSET_MATERIALIZATION' AND partition = :today"
    )
    storage: Any = instance.event_log_storage
    with storage.index_connection() as connection:
        connection.execute(text(statement), {"today": today, "days": list(days)})
