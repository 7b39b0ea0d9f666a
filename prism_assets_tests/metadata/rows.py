"""Builders of rows in PostgreSQL. A test states only its own facts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.data_file import MergedRange, SmallObject
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.files.rewrites import Certificate, Rewrite, RewriteKind
from prism_assets.domain.merges.plan import PlannedRange
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.metadata.database import Database
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs, small_objects
from prism_assets.metadata.files.merge_jobs import MergeJob
from prism_assets.metadata.intake import batches, staging_objects, streams
from prism_assets.metadata.intake.batches import Batch
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.metadata.rewrites import rewrites
from prism_assets.metadata.tables import tables
from prism_assets.stages.apply.plan import plan_apply
from prism_assets.stages.apply.run import execute_apply
from prism_assets.stages.rewrite.commit import commit_rewrite
from prism_assets_tests.builders import a_range, a_small_object, a_table, utc

DAY = date(2026, 3, 1)
NOON = utc("2026-03-01T12:00")
KEYS = TableKeys("lake", "", TableName("log", "events"))


class Rows:
    """Makes rows through the statements of the product, each call a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._keys = itertools.count(1)

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        """Runs one statement and returns its rows."""
        with self.database.begin() as connection:
            result = connection.execute(text(statement), parameters)
            return list(result.all()) if result.returns_rows else []

    def value(self, statement: str, **parameters: Any) -> Any:
        """The one value of a statement."""
        return self.sql(statement, **parameters)[0][0]

    def table(self, name: str = "log.events") -> TableDefinition:
        """Makes a table with one stream for its staging objects."""
        with self.database.begin() as connection:
            plan = plan_apply([parse_table_file(a_table(name), "t.yaml")], [], [])
            execute_apply(connection, plan, NOON)
            known = {str(table.name): table for table in tables.load_definitions(connection)}
        return known[name]

    def staging(self, table: TableDefinition, count: int = 1, *, size: int = 100) -> list[int]:
        """Pending staging objects of a table, and their ids."""
        found = [
            FoundObject(
                bucket="staging",
                key=f"{table.name.table}/{next(self._keys):06}",
                etag="e",
                content_length=size,
                send_time=NOON,
            )
            for _ in range(count)
        ]
        with self.database.begin() as connection:
            own = [known for known in streams.load_streams(connection) if known.table_id == table.table_id]
            staging_objects.register(connection, own[0].stream_id, found, NOON)
        keys = [item.key for item in found]
        ids = self.sql("SELECT prism_staging_object_id FROM prism_staging_objects WHERE object_key = ANY(:k)", k=keys)
        return sorted(row[0] for row in ids)

    def batch(self, worker: str = "w") -> Batch:
        """A running batch."""
        with self.database.begin() as connection:
            return batches.insert_batch(connection, worker)

    def partition(self, table: TableDefinition, day: date = DAY) -> int:
        """A new partition."""
        with self.database.begin() as connection:
            return partitions.ensure_and_lock(connection, [(table.table_id, day)])[table.table_id, day]

    def small(self, table: TableDefinition, count: int = 1, *, delayed: bool = False) -> list[int]:
        """Commits small objects of the one partition, each of its own staging object. Returns their ids."""
        made = []
        for staging in self.staging(table, count):
            with self.database.begin() as connection:
                made.append(insert_small(connection, table, staging, delayed=delayed))
        return made

    def waiting_job(self, partition_id: int, at: datetime = NOON) -> int:
        """Makes a waiting merge job. Returns its id."""
        with self.database.begin() as connection:
            partitions.lock_partition(connection, partition_id)
            merge_jobs.schedule(connection, [partition_id], at)
        statement = "SELECT prism_merge_job_id FROM prism_merge_jobs WHERE prism_partition_id = :p AND ongoing_mark = 0"
        return int(self.value(statement, p=partition_id))

    def claimed_job(self, at: datetime = NOON) -> MergeJob:
        """Claims the one due job."""
        with self.database.begin() as connection:
            (job,) = claim(connection, at)
        return job

    def load(self, partition_id: int) -> Partition:
        """Loads a partition."""
        with self.database.begin() as connection:
            return partitions.load_partitions(connection, [partition_id])[partition_id]


def claim(connection: Connection, at: datetime = NOON, limit: int = 10, **more: Any) -> list[MergeJob]:
    """Claims due jobs."""
    return merge_jobs.claim_due(connection, now=at, limit=limit, worker="w", **more)


_CONVERTED_UNDER = """
UPDATE prism_staging_objects SET definition_version = coalesce(definition_version, :version)
WHERE prism_staging_object_id = :staging
"""


def insert_small(
    connection: Connection, table: TableDefinition, staging: int, *, delayed: bool = False, day: date = DAY
) -> int:
    """Commits one small object as Stream does: partition row locked first, then the insert. Returns its id."""
    connection.execute(text(_CONVERTED_UNDER), {"staging": staging, "version": table.version})
    small = a_small_object(staging_object_id=staging, delayed=delayed, date=day)
    ids = partitions.ensure_and_lock(connection, [(table.table_id, small.date)])
    highest = small_objects.insert_small_objects(connection, [(ids[table.table_id, small.date], small)])
    partitions.raise_last_object(connection, highest)
    return max(highest.values())


def begin_rewrite(connection: Connection, partition_id: int, kind: RewriteKind = RewriteKind.MERGE) -> Rewrite:
    """Begins a rewrite of a day, without a held lease."""
    partition = partitions.lock_partition(connection, partition_id)
    version = connection.execute(
        text("SELECT definition_version FROM prism_tables WHERE prism_table_id = :t"), {"t": partition.table_id}
    ).scalar_one()
    return rewrites.begin(connection, partition, kind, definition_version=version, worker="w", lease_token=str(uuid4()))


def a_planned_range(
    objects: Sequence[SmallObject], *, extends: MergedRange | None = None, lower: int = 0
) -> PlannedRange:
    """Plans a range of some small objects, after `lower` or as an extension of another range."""
    return PlannedRange(
        lower_bound=extends.lower_bound if extends else lower,
        upper_bound=objects[-1].object_id,
        extends=extends,
        objects=tuple(objects),
    )


def written_of(planned: PlannedRange, rewrite: Rewrite, **more: Any) -> MergedRange:
    """Returns the output of a kernel for a planned range."""
    facts: dict[str, Any] = {
        "content_length": planned.input_bytes,
        "row_count": planned.row_count,
        "fingerprint": combine(file.fingerprint for file in planned.inputs),
        "rewrite_id": rewrite.rewrite_id,
        "definition_version": rewrite.definition_version,
    }
    return a_range(planned.lower_bound, planned.upper_bound, **{**facts, **more})


def merge_range(connection: Connection, partition_id: int, planned: PlannedRange, **more: Any) -> MergedRange:
    """Commits a planned range, like a merge. Returns the written range."""
    rewrite = begin_rewrite(connection, partition_id)
    written = written_of(planned, rewrite, **more)
    commit_rewrite(connection, rewrite, [planned.replacement(written)], Certificate.SAME_ROWS)
    return written
