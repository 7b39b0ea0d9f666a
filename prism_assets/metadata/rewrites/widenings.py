"""Statements on widenings: rewrites of all days of a table, which replace ranges by copies with wider types.

A widening runs while the definition of its table asks for copies. Merges stage the copies, each with its own number in
the key. A copy counts while its original stands in its range, and if it has all wider types. Once every range of a
table has a copy, the widening commits.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, text

from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.files.rewrites import RewriteKind, TableRewrite
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.rewrites import rewrites

COPIED = """
SELECT 1 FROM prism_staged_files c JOIN prism_rewrites w USING (prism_rewrite_id)
WHERE c.prism_partition_id = r.prism_partition_id AND c.lower_bound = r.lower_bound AND c.upper_bound = r.upper_bound
    AND c.replaces = r.rewrite_id AND c.definition_version >= :copies_since AND w.kind = 'widen'
"""
"""Whether the range `r` of prism_merge_ranges has a copy that counts."""


def begin(connection: Connection, table_id: int, definition_version: int, worker: str) -> None:
    """Begins the widening of a table. It has no lease: its commit and its end hold the rows of all days.

    `worker` names who began it.
    """
    values = {"table": table_id, "version": definition_version, "worker": worker}
    connection.execute(text(_BEGIN), values)


_BEGIN = """
INSERT INTO prism_rewrites (prism_table_id, kind, definition_version, state, worker)
VALUES (:table, 'widen', :version, 'running', :worker)
"""


def find(connection: Connection, table_id: int) -> TableRewrite | None:
    """Returns the running widening of a table, or None, with the current definition and the newest erasure.

    So the third rule of the commit never refuses it. An erasure replaces ranges with matching rows, and their copies no
    longer count. Reads without locks: while the caller holds the row of a day, the widening neither commits nor ends.
    """
    row = connection.execute(text(_RUNNING), {"table": table_id}).one_or_none()
    if row is None:
        return None
    return TableRewrite(
        rewrite_id=row.prism_rewrite_id,
        kind=RewriteKind.WIDEN,
        table_id=table_id,
        definition_version=row.definition_version,
        erasure_id=erasures.last_id(connection, table_id),
    )


_RUNNING = """
SELECT w.prism_rewrite_id, t.definition_version FROM prism_rewrites w JOIN prism_tables t USING (prism_table_id)
WHERE w.prism_table_id = :table AND w.kind = 'widen' AND w.state = 'running' AND w.prism_partition_id IS NULL
"""


def drop(connection: Connection, table_id: int) -> None:
    """Ends the running widening of a table, if any, without a change. Its copies are garbage from now on.

    The caller holds the rows of all partitions of the table.
    """
    if (widening := find(connection, table_id)) is not None:
        rewrites.drop(connection, widening.rewrite_id)


def find_uncopied(
    connection: Connection, partition_id: int, chain: Collection[MergedRange], copies_since: int
) -> list[MergedRange]:
    """Returns the ranges of a partition without a copy by a definition from `copies_since` on. Reads without locks."""
    values = {"partition": partition_id, "copies_since": copies_since}
    missing = set(connection.execute(text(_UNCOPIED), values).scalars())
    return [item for item in chain if item.upper_bound in missing]


_UNCOPIED = f"""
SELECT r.upper_bound FROM prism_merge_ranges r
WHERE r.prism_partition_id = :partition AND r.lower_bound IS NOT NULL AND NOT EXISTS ({COPIED})
"""


def forget_unneeded(connection: Connection, widening: TableRewrite, copies_since: int) -> None:
    """Deletes copies that do not count: of expired days, and those without one of the wider types.

    The caller holds the row of the rewrite.
    """
    connection.execute(text(_FORGET_UNNEEDED), {"rewrite": widening.rewrite_id, "copies_since": copies_since})


_FORGET_UNNEEDED = """
DELETE FROM prism_staged_files f USING prism_partitions p
WHERE f.prism_rewrite_id = :rewrite AND p.prism_partition_id = f.prism_partition_id
    AND (p.expire_time IS NOT NULL OR f.definition_version < :copies_since)
"""
