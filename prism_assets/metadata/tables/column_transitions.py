"""Statements on renamed and widened columns: the objects and days still to change. Reads without locks.

Callers ask only about tables with a column in transition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.transitions import ColumnTransition, ColumnWidening, ObjectsLeft, TransitionFacts
from prism_assets.domain.merges.plan import REWRITTEN_DAYS
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.intake.claims import DECIDED_VERSION
from prism_assets.metadata.rewrites.widenings import COPIED


@dataclass(frozen=True, kw_only=True)
class DayToRewrite:
    """A closed day with merged objects from before a rename or widening, or without a copy for one."""

    partition_id: int
    table_id: int
    date: date


def load_days_to_rewrite(
    connection: Connection, tables: Collection[TableDefinition], day: date | None = None
) -> list[DayToRewrite]:
    """Returns the days of each table whose objects the next run rewrites or copies, the newest first.

    Leaves out days with a merge job: the merge comes first and makes the copies, too.
    """
    found = []
    for table in tables:
        if table.is_rewriting or table.is_copying:
            versions = {"version": table.rewritten_below, "copies_since": table.copies_since}
            values = {"table": table.table_id, **versions, "most": REWRITTEN_DAYS, "day": day}
            found += [DayToRewrite(**row._mapping) for row in connection.execute(text(_TO_REWRITE), values)]
    return found


_TO_REWRITE = f"""
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date
FROM prism_partitions p
WHERE p.prism_table_id = :table AND p.expire_time IS NULL
    AND (CAST(:day AS date) IS NULL OR p.partition_date = :day)
    AND EXISTS (SELECT 1 FROM prism_merge_ranges r WHERE r.prism_partition_id = p.prism_partition_id
        AND r.lower_bound IS NOT NULL
        AND (r.definition_version < :version AND p.last_live_object_id IS NOT NULL
                AND p.last_object_id <= p.desired_manifest_version
            OR :copies_since > 0 AND NOT EXISTS ({COPIED})))
    AND NOT EXISTS (SELECT 1 FROM prism_merge_jobs j WHERE j.prism_partition_id = p.prism_partition_id)
ORDER BY p.partition_date DESC LIMIT :most
"""


def load_facts(
    connection: Connection, table: TableDefinition
) -> Iterator[tuple[Column, ColumnTransition, TransitionFacts]]:
    """Yields the facts for each transition of a table.

    Counts remaining objects only where the next step depends on them.
    """
    to_flip = load_left_to_flip(connection, table) if table.is_copying else ObjectsLeft()
    for column in table.columns:
        for transition in column.transitions:
            values = {"table": table.table_id, "version": transition.version, "since": transition.since}
            row = connection.execute(text(_TIMES), values).one()
            if transition.is_rewriting:
                left = load_left_to_rewrite(connection, table.table_id, transition.version)
            elif isinstance(transition, ColumnWidening) and transition.copy_type:
                left = to_flip
            else:
                left = ObjectsLeft()
            yield column, transition, TransitionFacts(left=left, **row._mapping)


def load_left_to_rewrite(connection: Connection, table_id: int, version: int) -> ObjectsLeft:
    """Returns the objects and days left from before a definition version, perhaps the next one."""
    row = connection.execute(text(_LEFT), {"table": table_id, "version": version, "copies_since": 0}).one()
    found = dict(row._mapping)
    in_open_days = found.pop("merged_in_open_days") + found.pop("in_open_days")
    return ObjectsLeft(in_open_days=in_open_days, **found)


def load_left_to_copy(connection: Connection, table: TableDefinition) -> ObjectsLeft:
    """Counts everything except merged objects with a copy, under any definition.

    One count serves all columns of the table, because they flip together.
    """
    values = {"table": table.table_id, "version": table.version + 1, "copies_since": table.copies_since}
    found = dict(connection.execute(text(_LEFT), values).one()._mapping)
    uncopied = found.pop("merged") + found.pop("merged_in_open_days")
    return ObjectsLeft(uncopied=uncopied, **found)


def load_left_to_flip(connection: Connection, table: TableDefinition) -> ObjectsLeft:
    """Counts everything that delays a flip: objects without a copy, merges that may still write objects without one,
    and unswitched days.
    """
    left = load_left_to_copy(connection, table)
    others = connection.execute(text(_BESIDE_COPIES), {"table": table.table_id}).one()
    return replace(left, **others._mapping)


_TIMES = """
SELECT (SELECT create_time FROM prism_table_definitions WHERE prism_table_id = :table AND version = :version) AS begun,
    (SELECT create_time FROM prism_table_definitions WHERE prism_table_id = :table AND version = :since) AS since,
    (SELECT CASE WHEN bool_and(defined_version >= :since) THEN max(renamed_time) END FROM prism_table_publications
        WHERE prism_table_id = :table AND NOT EXISTS (
            SELECT 1 FROM prism_publication_intents WHERE prism_table_id = :table)) AS shown
"""

# Readers of an open day list all its objects; readers of a switched day use its ranges and the objects above. A
# catalog's view of a closed day is outdated until a publication after the last change of its ranges. Without a recorded
# publication, one may still have landed before its run died. Everything written under an earlier definition was claimed
# under it, or has such an object as input.
_LEFT = f"""
WITH days AS MATERIALIZED (
    SELECT p.partition_date AS date, p.last_live_object_id IS NULL AS is_open,
        CASE WHEN p.expire_time IS NOT NULL THEN 0 ELSE (
            SELECT count(*) FROM prism_merge_ranges r WHERE r.prism_partition_id = p.prism_partition_id
                AND r.lower_bound IS NOT NULL AND r.definition_version < :version
                AND (:copies_since = 0 OR NOT EXISTS ({COPIED}))) END AS merged,
        CASE WHEN p.expire_time IS NOT NULL THEN 0 ELSE (
            SELECT count(*) FROM prism_small_objects s WHERE s.prism_partition_id = p.prism_partition_id
                AND s.prism_small_object_id > CASE WHEN p.switched THEN p.desired_manifest_version ELSE 0 END
                AND s.definition_version < :version) END AS small,
        EXISTS (SELECT 1 FROM prism_publications q WHERE q.prism_partition_id = p.prism_partition_id
            AND q.publisher <> 'iceberg' AND CASE
                WHEN p.expire_time IS NOT NULL THEN q.version >= 0
                WHEN p.last_live_object_id IS NULL THEN false
                WHEN q.version < 0 THEN q.dirty AND greatest(p.last_object_id, p.desired_manifest_version) > 0
                ELSE q.revision < p.revision OR p.switched AND q.version < p.desired_manifest_version
            END) AS is_behind
    FROM prism_partitions p WHERE p.prism_table_id = :table
)
SELECT CAST(coalesce(sum(merged) FILTER (WHERE NOT is_open), 0) AS bigint) AS merged,
    CAST(coalesce(sum(small) FILTER (WHERE NOT is_open), 0) AS bigint) AS small,
    CAST(coalesce(sum(merged) FILTER (WHERE is_open), 0) AS bigint) AS merged_in_open_days,
    CAST(coalesce(sum(small) FILTER (WHERE is_open), 0) AS bigint) AS in_open_days,
    (SELECT count(*) FROM prism_staging_objects o WHERE o.prism_table_id = :table
        AND (o.state IN ('pending', 'claimed') OR o.state = 'failed' AND o.claim_version IS NOT NULL)
        AND {DECIDED_VERSION} < :version) AS staging,
    count(*) FILTER (WHERE is_behind) AS unpublished_days,
    (SELECT count(*) FROM prism_publication_intents n WHERE n.prism_table_id = :table) AS publications,
    min(date) FILTER (WHERE merged + small > 0 OR is_behind) AS first_day,
    max(date) FILTER (WHERE merged + small > 0 OR is_behind) AS last_day
FROM days
"""

# A running or waiting merge may still write under an earlier plan. Without one, a new merge cannot start without the
# lock of the day.
_BESIDE_COPIES = """
SELECT (SELECT count(*) FROM prism_merge_jobs JOIN prism_partitions USING (prism_partition_id)
        WHERE prism_table_id = :table AND NOT (parked OR last_error IS NOT NULL)) AS merges,
    (SELECT count(*) FROM prism_merge_jobs JOIN prism_partitions USING (prism_partition_id)
        WHERE prism_table_id = :table AND (parked OR last_error IS NOT NULL)) AS failing_merges,
    (SELECT count(*) FROM prism_partitions WHERE prism_table_id = :table AND NOT switched AND expire_time IS NULL
        AND last_live_object_id IS NOT NULL AND last_object_id > 0) AS unswitched_days
"""
