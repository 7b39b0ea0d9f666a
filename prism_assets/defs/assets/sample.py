"""A few rows of a table's newest day, in the metadata of the day's publication."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from dagster import MetadataValue, TableColumn, TableRecord, TableSchema

from prism_assets.defs.assets.outcome import Facts
from prism_assets.metadata.days.publications import newest_published
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_SECONDS = 10
_LONGEST_TEXT = 200
_LONGEST_SAMPLE = 1 << 16
_LARGEST_EXACT = (1 << 53) - 1


def read_sample_rows(
    context: StageContext,
    publisher: str,
    names: Collection[str],
    now: datetime,
    examples: Mapping[tuple[int, date], Sequence[str]],
) -> Mapping[tuple[int, date], Facts]:
    """Returns sample rows of each table whose newest day was published, by table and day. `examples` are objects of the
    days.

    Older days get none, so Dagster stores few rows. Samples are only for people: reading them is limited in time, and
    errors are logged and ignored.
    """
    most, deadline = context.settings.sample_rows, Deadline.after(_SECONDS)
    if not (most and examples):
        return {}
    # pyarrow takes time to import, and loading definitions does not need it.
    from prism_assets.reading.sample import read_sample

    found: dict[tuple[int, date], Facts] = {}
    try:
        tables = context.choose_tables(names)
        with context.database.begin() as connection:
            newest = newest_published(connection, publisher, {table.table_id: table.today(now) for table in tables})
        for table in tables:
            of = (table.table_id, newest.get(table.table_id, date.min))
            if of in examples and not deadline.is_over:
                columns = [column for column in table.columns if not column.hides]
                stored = [column.glue_name for column in columns]
                rows = read_sample(context.settings, stored, examples[of], most).rows
                found[of] = {"sample rows": _shown([column.name for column in columns], rows)}
    except Exception as error:  # The work is committed: nothing here may fail the run.
        context.progress(f"{publisher}: no more rows can be shown: {type(error).__name__}: {error}")
    return found


def _shown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> MetadataValue:
    records: list[TableRecord] = []
    length = 0
    for row in rows:
        cells = [_cell(value) for value in row]
        length += sum(len(str(cell)) for cell in cells)
        if records and length > _LONGEST_SAMPLE:
            break
        records.append(TableRecord(dict(zip(columns, cells, strict=True))))
    return MetadataValue.table(records, TableSchema([TableColumn(name) for name in columns]))


def _cell(value: object) -> str | int | float | bool | None:
    """Converts a value for a browser. Text is shortened, and numbers that JavaScript would round become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _LARGEST_EXACT:
        return value
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
