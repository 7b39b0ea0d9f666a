"""Drafts columns for fields in a table's lines that no column reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drafted_columns import DraftedColumn, draft_columns
from prism_assets.domain.tables.drift import SeenField, is_whole
from prism_assets.drafting.sample_lines import MOST_OBJECTS, SampleObject, object_at, read_lines
from prism_assets.kernels.json.survey import survey
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores, stores_of


def draft_patch(
    config: StoreConfig, table: TableDefinition, fields: Sequence[SeenField], *, wide: bool = False
) -> list[DraftedColumn]:
    """Drafts a column for each key, in key order. Types follow the rule of drafts and lose no value of the sample.

    Reads the objects in which the fields were last seen. If all of them are gone from the staging bucket, the column is
    a string, because strings take every value. The contract `evolve` adds columns without review, so its columns are
    `wide`. Join tables take no nested columns.
    """
    stores = stores_of(config)
    places = Counter((field.bucket, field.object_key) for field in fields)
    there = [
        item
        for (bucket, key), _ in places.most_common(MOST_OBJECTS)
        if (item := _if_there(stores, bucket, key)) is not None
    ]
    by_records: dict[str | None, list[SampleObject]] = {}
    for item in there:
        stream = table.stream_of(item.bucket or "", item.key)
        by_records.setdefault(stream.records if stream else None, []).append(item)
    sample = survey(line for records, items in by_records.items() for line in read_lines(items, records).lines)
    taken = [column.name for column in (*table.columns, *table.unstored)]
    keys = sorted({field.key for field in fields if is_whole(field.key)})
    return draft_columns(keys, sample, taken, wide=wide, flat=table.change_log is not None)


def column_lines(table: TableDefinition, drafted: Sequence[DraftedColumn]) -> list[str]:
    """Returns the lines for the table file: columns added by the contract, and drafted ones."""
    evolved = [
        DraftedColumn(
            name=column.name,
            key=column.source,
            type=column.type,
            comment="came by the contract",
            length=column.length,
            time_unit=column.time_unit,
        )
        for column in table.columns
        if column.evolved
    ]
    return [str(column) for column in (*evolved, *drafted)]


def _if_there(stores: Stores, bucket: str, key: str) -> SampleObject | None:
    try:
        stores.head(bucket, key)
    except ObjectMissing:
        return None
    return object_at(stores, bucket, key)
