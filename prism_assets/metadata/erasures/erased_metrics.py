"""Statements on column metrics that may contain erased values, of objects not searched by an erasure.

An erasure searches the objects needed by readers, merges and folds, and objects rewritten by it get new metrics.
Unneeded objects are not searched: small objects covered by a range, replaced records, and outdated copies and rebuilds.
Garbage collection deletes them, but PostgreSQL keeps a row of each, with metrics, for the ledger. Only searches and
readers use metrics, to skip objects. So an erasure drops the metrics of unneeded objects before its proof. Merges could
drop them sooner, but each merge would then rewrite a row of PostgreSQL for every input, even in tables without
erasures.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from prism_assets.domain.erasures.rules import Erasure

# A current copy of a range holds the rows of its range, and was searched together with it.
_UNSEARCHED: Mapping[str, str] = {
    "prism_small_objects": "prism_partition_id = :partition AND erasure_id < :erasure",
    "prism_merge_ranges": "prism_partition_id = :partition AND erasure_id < :erasure",
    "prism_record_objects": "prism_partition_id = :partition AND erasure_id < :erasure",
    "prism_staged_files": """prism_partition_id = :partition AND coalesce(x.erasure_id, (
        SELECT r.erasure_id FROM prism_merge_ranges r WHERE r.prism_partition_id = x.prism_partition_id
            AND r.lower_bound = x.lower_bound AND r.upper_bound = x.upper_bound AND r.rewrite_id = x.replaces), -1)
        < :erasure""",
}


def forget_metrics(connection: Connection, partition_id: int, erasure: Erasure) -> None:
    """Removes the metrics of a day's objects not searched for an erasure.

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
