"""A sample of a join table's changes, as readers of its log see them: all changes of some keys."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.joins import CHANGE_OBJECT
from prism_assets.domain.sql_quoting import quote_identifier
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import RowsReader, run_query


@dataclass(frozen=True, kw_only=True)
class SampledChanges:
    """Changes of a sample of keys, from the newest days of the log."""

    days: int
    """How many of the newest days with changes were read."""
    log_changes: int
    """How many changes those days hold in all."""
    one_of: int
    """One key in this many is in the sample."""
    keys: tuple[tuple[tuple[float, int], ...], ...]
    """Changes by key and time: the event's time in seconds, and the id of its staging object."""


def sample_changes(
    reader: LakeReader | RowsReader, table: TableDefinition, *, most_days: int, most_changes: int
) -> SampledChanges:
    """Reads about `most_changes` changes. Keys are whole unless a single key has too many changes."""
    if table.join is None:
        raise WrongUse(f"{table.name} is no join table: each of its rows is a line of its own")
    name = log_name(table.name)
    log = quote_identifier(name.schema, name.table)
    counted = run_query(reader, f"SELECT dt, count(*) FROM {log} GROUP BY dt ORDER BY dt DESC LIMIT {most_days}").rows
    total = sum(int(row[1]) for row in counted)
    if not total:
        return SampledChanges(days=0, log_changes=0, one_of=1, keys=())
    one_of = -(-total // most_changes)
    keys = ", ".join(map(quote_identifier, table.join.key))
    seconds = f"epoch_ms(CAST({quote_identifier(table.partition_column)} AS TIMESTAMP)) / 1000"
    sample = f"""
SELECT list(seconds), list(object) FROM (
    SELECT {keys}, {seconds} AS seconds, {CHANGE_OBJECT} AS object FROM {log}
    WHERE dt >= DATE '{counted[-1][0]}' AND hash({keys}) % {one_of} = 0
    ORDER BY {keys}, seconds LIMIT {2 * most_changes}
)
GROUP BY {keys}
"""
    rows = run_query(reader, sample).rows
    return SampledChanges(
        days=len(counted),
        log_changes=total,
        one_of=one_of,
        keys=tuple(tuple(sorted(zip(times, objects, strict=True))) for times, objects in rows),
    )
