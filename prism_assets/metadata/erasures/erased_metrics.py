"""Statements on column metrics that may hold erased values: those of objects that an erasure did not look through.

An erasure looks through the objects that readers, merges and folds need; objects that it rewrites get new metrics. Nobody
needs small objects that a range covers, replaced records, or copies and rebuilds of earlier rows. Garbage collection
deletes these objects, but PostgreSQL keeps a row of each, with metrics, for the ledger. Only searches and readers use
metrics, to skip objects. So an erasure drops the metrics of such objects before its proof. A merge could drop them
sooner, but would then rewrite a row of PostgreSQL for each object that it reads, in tables of which nobody ever erases.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from prism_assets.domain.erasures.rules import Erasure

# A copy of a range holds the rows of its range: it was looked through with that, if it still is a copy of it.
_UNSEARCHED: Mapping[str, str] = {
    "prism_small_objects": "prism_partition_id = :partition AND erasure_id < :erasure",
    "prism_merge_ranges": "prism_partition_id = :partition AND erasure_id < :erasure",
    "prism_record_objects": "prism_partition_id = :partition AND erasure_id < :erasure",
    "prism_range_copies": """prism_partition_id = :partition AND NOT EXISTS (
        SELECT 1 FROM prism_merge_ranges r WHERE r.prism_partition_id = x.prism_partition_id
            AND r.upper_bound = x.upper_bound AND r.lower_bound = x.lower_bound AND r.rewrite_id = x.copied_rewrite_id
            AND r.erasure_id >= :erasure)""",
    "prism_rebuilt_objects": """prism_rewrite_id IN (SELECT prism_rewrite_id FROM prism_rewrites
        WHERE prism_partition_id = :partition AND erasure_id < :erasure)""",
    "prism_rebuilt_ranges": """prism_rewrite_id IN (SELECT prism_rewrite_id FROM prism_rewrites
        WHERE prism_partition_id = :partition AND erasure_id < :erasure)""",
}


def forget_metrics(connection: Connection, partition_id: int, erasure: Erasure) -> None:
    """Forgets the metrics of the objects of a day that were not looked through for an erasure.

    Locks these rows, by the indexes on the partition. Merges and folds that read the metrics before write new ones.
    """
    values = {"partition": partition_id, "erasure": erasure.erasure_id}
    for table, unsearched in _UNSEARCHED.items():
        connection.execute(
            text(f"UPDATE {table} x SET metrics = NULL WHERE metrics IS NOT NULL AND {unsearched}"), values
        )


def count_metrics(connection: Connection, erasure: Erasure) -> dict[str, int]:
    """How many objects have metrics and were not looked through for an erasure, by table. Reads without locks."""
    found = connection.execute(text(_COUNT), {"table": erasure.table_id, "erasure": erasure.erasure_id})
    return {row.name: row.objects for row in found if row.objects}


_COUNT = " UNION ALL ".join(
    f"""SELECT '{table}' AS name, count(*) AS objects FROM prism_partitions p CROSS JOIN LATERAL (
        SELECT 1 FROM {table} x WHERE metrics IS NOT NULL AND {unsearched.replace(":partition", "p.prism_partition_id")}
        ) held WHERE p.prism_table_id = :table"""
    for table, unsearched in _UNSEARCHED.items()
)
