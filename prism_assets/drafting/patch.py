"""Drafts columns for fields in a table's lines that no column reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from prism_assets.domain.columns.types import DEFAULT_LENGTH, Field, StringType, StructType
from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.streams.sources import is_message_fact
from prism_assets.domain.streams.stream import Format
from prism_assets.domain.streams.survey import KeyEvidence
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drafted_columns import DraftedColumn, draft_columns, field_line
from prism_assets.domain.tables.drafted_parts import DraftedField, is_short, names_for, new_field
from prism_assets.domain.tables.drift import SeenField, is_whole, structs_of
from prism_assets.drafting.inside import survey_inside
from prism_assets.drafting.sample_lines import MOST_OBJECTS, SampleObject, object_at, read_lines
from prism_assets.kernels.json.survey import survey
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores, stores_of

_EVOLVED = "came by the contract"
"""The comment on columns and fields that the contract added."""


def draft_patch(
    config: StoreConfig, table: TableDefinition, fields: Sequence[SeenField], *, wide: bool = False
) -> list[DraftedColumn]:
    """Drafts a column for each key, in key order. Types follow the rule of drafts and lose no value of the sample.

    Reads the objects in which the fields were last seen. If all of them are gone from the staging bucket, the column is
    a string, because strings take every value. The contract `evolve` adds columns without review, so its columns are
    `wide`.
    """
    is_text = any(isinstance(stream.format, TextFormat) for stream in table.streams)
    sample = survey(_lines_of(config, table, fields), is_text=is_text)
    taken = [column.name for column in (*table.columns, *table.unstored)]
    keys = sorted({field.key for field in fields if is_whole(field.key) and not field.within})
    drafted = draft_columns(keys, sample, taken, wide=wide)
    if not table.reads_topics:
        return drafted
    # In a table of a topic, the bare name would be the fact about the message.
    return [
        replace(column, source=f"$[{json.dumps(column.key)}]") if is_message_fact(column.key) else column
        for column in drafted
    ]


def draft_fields(
    config: StoreConfig, table: TableDefinition, fields: Sequence[SeenField], *, wide: bool = False
) -> list[DraftedField]:
    """Drafts a field for each key inside a struct, as `draft_patch` does for keys of lines, by path and key."""
    wanted = sorted({(field.within, field.key) for field in fields if is_whole(field.key) and field.within})
    if not wanted:
        return []
    found = survey_inside(_lines_of(config, table, fields), table, wanted)
    structs = dict(structs_of(table))
    drafted = []
    for within, group in groupby(wanted, key=lambda place: place[0]):
        keys = [key for _, key in group]
        names = names_for(keys, [part.name for part in structs[within].fields])
        for key in keys:
            evidence = found[within, key]
            comment = f"{evidence.values:,} in current lines" if evidence.values else "in no current line"
            drafted.append(DraftedField(within, _new_field(names[key], evidence, wide=wide), comment))
    return drafted


def _new_field(name: str, evidence: KeyEvidence, *, wide: bool) -> Field:
    if evidence.values:
        return new_field(name, evidence, wide=wide)
    return Field(name=name, source=evidence.key, type=StringType(), length=DEFAULT_LENGTH)


def field_lines(drafted: Sequence[DraftedField]) -> list[str]:
    """Returns lines for the table file: fields below the name of their struct, in the long and in the short form."""
    lines = []
    for within, group in groupby(sorted(drafted, key=lambda field: field.within), key=lambda field: field.within):
        found = list(group)
        short = [item.field for item in found if is_short(StructType((item.field,)))]
        lines.append(f"# below fields of {within}:")
        lines += [field_line(item.field, item.comment) for item in found]
        if short:
            words = ", ".join(f"{part.name}: {part.type_name}" for part in short)
            lines.append(f"# or in the brackets of {within}: {words}")
    return lines


def evolved_fields(table: TableDefinition) -> list[DraftedField]:
    """Returns the fields that the contract added and the file does not have."""
    return [
        DraftedField(within, part, _EVOLVED)
        for within, kind in structs_of(table)
        for part in kind.fields
        if part.evolved
    ]


def _lines_of(config: StoreConfig, table: TableDefinition, fields: Sequence[SeenField]) -> Iterator[bytes]:
    """Yields lines of the objects in which the fields were last seen, as far as they are there."""
    stores = stores_of(config)
    places = Counter((field.bucket, field.object_key) for field in fields)
    there = [
        item
        for (bucket, key), _ in places.most_common(MOST_OBJECTS)
        if (item := _if_there(stores, bucket, key)) is not None
    ]
    by_format: dict[Format | None, list[SampleObject]] = {}
    for item in there:
        stream = table.stream_of(item.bucket or "", item.key)
        by_format.setdefault(stream.format if stream else None, []).append(item)
    for form, items in by_format.items():
        yield from read_lines(items, form).lines


def column_lines(table: TableDefinition, drafted: Sequence[DraftedColumn]) -> list[str]:
    """Returns the lines for the table file: columns added by the contract, and drafted ones."""
    evolved = [
        DraftedColumn(
            name=column.name,
            key=column.source,
            type=column.type,
            comment=_EVOLVED,
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
