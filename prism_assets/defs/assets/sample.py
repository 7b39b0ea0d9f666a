"""A few rows of the newest day that a catalog run showed to readers, as a table in the metadata of that day."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date

from dagster import MetadataValue, TableColumn, TableRecord, TableSchema

from prism_assets.defs.assets.outcome import Facts
from prism_assets.domain.errors import PrismError
from prism_assets.stages.catalog.run import CatalogReport
from prism_assets.stages.context import StageContext

_LONGEST_TEXT = 200
_LARGEST_EXACT = (1 << 53) - 1


def read_sample_rows(context: StageContext, done: CatalogReport) -> Mapping[tuple[int, date], Facts]:
    """Rows as a reader gets them, by table and its newest published day. What cannot be read now is told in the log."""
    newest = [(table, max(item.date for item in table.published)) for table in done.tables if table.published]
    if not (newest and context.settings.sample_rows):
        return {}
    # pyarrow takes time to import, and the definitions are loaded without it.
    from prism_assets.reading.lake_reader import LakeReader
    from prism_assets.reading.sample import Sample, read_sample

    def shown(sample: Sample) -> Facts:
        schema = TableSchema([TableColumn(name) for name in sample.columns])
        records = [TableRecord(dict(zip(sample.columns, map(_cell, row), strict=True))) for row in sample.rows]
        return {"sample rows": MetadataValue.table(records, schema)}

    reader, found = LakeReader(context.settings), {}
    for table, day in newest:
        try:
            sample = read_sample(reader, table.table, day, context.settings.sample_rows)
        except PrismError as error:
            context.progress(f"catalog: no rows of {table.table} {day} can be shown: {error}")
        else:
            found[table.table_id, day] = shown(sample) if sample else {}
    return found


def _cell(value: object) -> str | int | float | bool | None:
    """A value as a browser can take it: a text that is not endless, but for what JSON and JavaScript have exactly."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _LARGEST_EXACT:
        return value
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
