"""The ledger of converted staging objects: lines in, rows out, and quarantined, filtered, erased lines, and those
elsewhere. Reads without locks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Sums over all done objects of a table."""

    table_id: int
    objects: int
    lines_in: int
    rows_out: int
    rows_quarantined: int
    rows_filtered: int
    rows_erased: int
    rows_elsewhere: int


def ledger(connection: Connection) -> list[Ledger]:
    """Returns the ledger by table. Reads all staging objects, so it is for status and tests, not for the hot path."""
    return [
        Ledger(
            table_id=row.prism_table_id,
            objects=row.objects,
            lines_in=int(row.lines_in),
            rows_out=int(row.rows_out),
            rows_quarantined=int(row.rows_quarantined),
            rows_filtered=int(row.rows_filtered),
            rows_erased=int(row.rows_erased),
            rows_elsewhere=int(row.rows_elsewhere),
        )
        for row in connection.execute(text(_LEDGER))
    ]


_LEDGER = """
SELECT prism_table_id, count(*) AS objects, sum(lines_in) AS lines_in, sum(rows_out) AS rows_out,
    sum(rows_quarantined) AS rows_quarantined, sum(rows_filtered) AS rows_filtered, sum(rows_erased) AS rows_erased,
    sum(rows_elsewhere) AS rows_elsewhere
FROM prism_staging_objects
WHERE state = 'done'
GROUP BY prism_table_id
"""


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The ledger of a table's objects converted since some time, and objects that do not balance.

    Rows out must equal the rows of small objects plus rows erased later. Quarantined lines must equal the lines kept.
    """

    table_id: int
    objects: int
    lines_in: int
    rows_out: int
    quarantined: int
    filtered: int
    erased: int
    elsewhere: int
    unbalanced_objects: int
    unbalanced: tuple[str, ...]
    """At most three objects with their figures."""


def balances(
    connection: Connection, table_ids: Collection[int], since: datetime, day: date | None = None
) -> list[Balance]:
    """Returns ledgers of objects finished at `since` or later, or of those with rows of a day.

    Leaves out tables without any.
    """
    chosen = _FINISHED_SINCE if day is None else _WITH_ROWS_OF_A_DAY
    given = {"tables": list(table_ids), **({"since": since} if day is None else {"day": day})}
    rows = connection.execute(text(_BALANCES.format(chosen=chosen)), given)
    return [
        Balance(
            table_id=row.prism_table_id,
            objects=row.objects,
            lines_in=int(row.lines_in),
            rows_out=int(row.rows_out),
            quarantined=int(row.quarantined),
            filtered=int(row.filtered),
            erased=int(row.erased),
            elsewhere=int(row.elsewhere),
            unbalanced_objects=row.unbalanced_objects,
            unbalanced=tuple(row.unbalanced or ()),
        )
        for row in rows
    ]


_FINISHED_SINCE = "o.finish_time >= :since"
_WITH_ROWS_OF_A_DAY = """o.prism_staging_object_id IN (
    SELECT s.prism_staging_object_id FROM prism_partitions p JOIN prism_small_objects s USING (prism_partition_id)
    WHERE p.prism_table_id = ANY(:tables) AND p.partition_date = :day)"""
_BALANCES = """
SELECT prism_table_id, count(*) AS objects, sum(lines_in) AS lines_in, sum(rows_out) AS rows_out,
    sum(rows_quarantined) AS quarantined, sum(rows_filtered) AS filtered, sum(rows_erased) AS erased,
    sum(rows_elsewhere) AS elsewhere,
    count(*) FILTER (WHERE wrong) AS unbalanced_objects,
    (array_agg(sentence ORDER BY prism_staging_object_id) FILTER (WHERE wrong))[1:3] AS unbalanced
FROM (
    SELECT o.*,
        o.lines_in <> o.rows_out + o.rows_quarantined + o.rows_filtered + o.rows_erased + o.rows_elsewhere
            OR s.rows <> o.rows_out OR q.lines <> o.rows_quarantined AS wrong,
        format('s3://%s/%s: %s lines in, %s rows out of which %s are in small objects, %s quarantined of '
            'which %s are kept, %s filtered, %s erased, %s elsewhere', o.bucket_name, o.object_key, o.lines_in, o.rows_out, s.rows,
            o.rows_quarantined, q.lines, o.rows_filtered, o.rows_erased, o.rows_elsewhere) AS sentence
    FROM prism_staging_objects o
    CROSS JOIN LATERAL (SELECT coalesce(sum(row_count + rows_erased), 0) AS rows FROM prism_small_objects
        WHERE prism_staging_object_id = o.prism_staging_object_id) s
    CROSS JOIN LATERAL (SELECT coalesce(sum(line_count), 0) AS lines FROM prism_quarantine
        WHERE prism_staging_object_id = o.prism_staging_object_id) q
    WHERE o.state = 'done' AND o.prism_table_id = ANY(:tables) AND {chosen}
) ledger
GROUP BY prism_table_id
"""
