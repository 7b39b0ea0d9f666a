"""Fields of lines without a column: how they are counted, and how they become columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import path_below, path_of_key
from prism_assets.domain.columns.types import ColumnType, MapType, StructType, part_count
from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.service_limits import MOST_PARTS
from prism_assets.domain.streams.sources import Pattern, Rest, is_message_fact, keys_of, sources_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import EVOLVE
from prism_assets.domain.text import counted

MOST_KEYS = 500
"""The most keys of one table, and of one object."""
_LONGEST_KEY = 200


class FieldKind(Enum):
    """The kind of an undefined field's value, judged by its first character."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NESTED = "nested"


def shown_key(key: str) -> str:
    """Returns a key for storage: at most 200 characters, without characters PostgreSQL refuses."""
    kept = key.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept if len(kept) <= _LONGEST_KEY else f"{kept[:_LONGEST_KEY]}…"


def is_whole(key: str) -> bool:
    """Whether a stored key certainly equals the key in the line."""
    return len(key) <= _LONGEST_KEY and "\N{REPLACEMENT CHARACTER}" not in key


@dataclass(frozen=True, kw_only=True)
class SeenField:
    """Counted fields of one key and kind in a table's lines, with an example. The times are None until it is stored."""

    table_id: int
    key: str
    within: str = ""
    """The path of the struct around it, such as `items[]`. "" for keys of lines."""
    kind: FieldKind
    count: int
    bucket: str
    object_key: str
    line: int
    first_time: datetime | None = None
    last_time: datetime | None = None

    @property
    def path(self) -> str:
        """The field for people: `items[].sku`."""
        return path_of_key(self.within, self.key)

    @property
    def place(self) -> str:
        """The place of the example."""
        return f"s3://{self.bucket}/{self.object_key}:{self.line}"


def summed(seen: Iterable[SeenField]) -> list[SeenField]:
    """Returns one sorted entry per table, place, key and kind, with the last object as example."""
    totals: dict[tuple[int, str, str, str], SeenField] = {}
    for field in seen:
        identity = field.table_id, field.within, field.key, field.kind.value
        before = totals.get(identity)
        totals[identity] = field if before is None else replace(field, count=before.count + field.count)
    return [totals[identity] for identity in sorted(totals)]


def within_limit(seen: Sequence[SeenField], known: Collection[tuple[int, str, str]]) -> list[SeenField]:
    """Returns the fields that may be stored beside the `known` keys of tables and places.

    No table has more than 500 keys.
    """
    keys = set(known)
    counts: dict[int, int] = {}
    for table, _, _ in keys:
        counts[table] = counts.get(table, 0) + 1
    kept = []
    for field in seen:
        identity = field.table_id, field.within, field.key
        if identity not in keys:
            if counts.get(field.table_id, 0) >= MOST_KEYS:
                continue
            keys.add(identity)
            counts[field.table_id] = counts.get(field.table_id, 0) + 1
        kept.append(field)
    return kept


PlacedKey = tuple[str, str]
"""The path of a struct, `""` for lines, and a key in it, in the form of stored keys."""


def defined_keys(table: TableDefinition) -> frozenset[PlacedKey]:
    """Returns the keys read by a table's columns and their fields."""
    lines = {("", shown_key(key)) for column in _read(table) for key in keys_of(sources_of(column))}
    fields = {(path, shown_key(part.source or part.name)) for path, kind in structs_of(table) for part in kind.fields}
    return frozenset(lines | fields)


def structs_of(table: TableDefinition) -> Iterator[tuple[str, StructType]]:
    """Yields the structs whose keys are watched, with their paths: all outside of maps."""
    for column in _read(table):
        yield from _structs(column.name, column.type)


def _structs(path: str, kind: ColumnType) -> Iterator[tuple[str, StructType]]:
    if isinstance(kind, MapType):
        return
    if isinstance(kind, StructType):
        yield path, kind
    for part in kind.parts:
        yield from _structs(path_below(path, kind, part), part.type)


def still_undefined(table: TableDefinition, seen: Iterable[SeenField]) -> list[SeenField]:
    """Returns the seen fields that no current column reads. Objects may be from older definitions."""
    takes_all = any(isinstance(source, Rest) for column in _read(table) for source in sources_of(column))
    defined, collected = defined_keys(table), list(_collected(table))
    structs = {path for path, _ in structs_of(table)}

    def is_undefined(field: SeenField) -> bool:
        if field.within:
            return field.within in structs
        return not takes_all and not any(pattern.search(field.key) for pattern in collected)

    return [
        field
        for field in seen
        if field.table_id == table.table_id and (field.within, field.key) not in defined and is_undefined(field)
    ]


def _collected(table: TableDefinition) -> Iterator[re.Pattern[str]]:
    """Yields the key patterns of columns. Skips patterns only RE2 understands."""
    for column in _read(table):
        for source in sources_of(column):
            if isinstance(source, Pattern):
                with suppress(re.error):
                    yield re.compile(source.expression)


_NUMBERED = re.compile(r"([^0-9]*[^0-9a-fA-F]|)[0-9a-fA-F]*[0-9][0-9a-fA-F-]*")
_PLAIN = re.compile(r"[\w.: @-]+")
"""Characters that need no escape in a pattern, except the dot, nor in a table file's quotes."""
_LEAST_ALIKE = 3


def collecting_source(keys: Iterable[str]) -> str | None:
    """Returns the pattern of the largest group of keys that differ only in a number or id. None below three."""
    matches = filter(None, map(_NUMBERED.fullmatch, keys))
    alike = Counter(match[1] for match in matches if _PLAIN.fullmatch(match[1]))
    for prefix, count in alike.most_common(1):
        return f"/^{prefix.replace('.', '[.]')}/" if count >= _LEAST_ALIKE else None
    return None


def room_for_columns(table: TableDefinition) -> int:
    """Returns how many columns the contract may still add."""
    return max(0, table.contract.most_columns - len(table.columns))


def room_in(table: TableDefinition, struct: StructType) -> int:
    """Returns how many fields the contract may still add to a struct."""
    return max(0, table.contract.most_columns - len(struct.fields))


def room_for_parts(table: TableDefinition) -> int:
    """Returns how many parts the columns of a table may still get."""
    return max(0, MOST_PARTS - sum(part_count(column.type) for column in table.columns))


def is_full(table: TableDefinition) -> bool:
    """Whether the contract adds no more columns, or no more fields to some struct."""
    return not room_for_columns(table) or bool(_full_structs(table))


def addable(table: TableDefinition, fields: Sequence[SeenField]) -> list[SeenField]:
    """Returns the fields for which the contract has room in their place.

    The log of a join table has the structs of its records, and gets no fields of its own. A key with the name of a fact
    about messages gets no column of its own in a table of a topic: there the name is the fact.
    """
    has_facts = table.reads_topics
    full = _full_structs(table)
    stored = () if table.change_log is not None else [column.name for column in table.columns]
    in_structs = {path for path, _ in structs_of(table) if path not in full and _column_of(path) in stored}
    room = room_for_columns(table)

    def fits(field: SeenField) -> bool:
        return bool(room) and not (has_facts and is_message_fact(field.key))

    return [field for field in fields if (field.within in in_structs if field.within else fits(field))]


def _column_of(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _full_structs(table: TableDefinition) -> dict[str, StructType]:
    """Returns the structs that get no more fields, by path."""
    none_left = not room_for_parts(table)
    return {path: kind for path, kind in structs_of(table) if none_left or not room_in(table, kind)}


def full_contract(table: TableDefinition, fields: Collection[SeenField]) -> Finding | None:
    """Returns why an evolving table adds no more columns, with the remedy. None if it still does."""
    keys = {field.key for field in fields if is_whole(field.key) and not field.within}
    if table.contract.new_fields != EVOLVE:
        return None
    if not keys or room_for_columns(table):
        return _full_struct(table, fields)
    pattern = collecting_source(keys)
    source = f'"{pattern}"' if pattern else '"*"'
    return Finding(
        kind="full_contract",
        table=str(table.name),
        says=f"it has {counted(len(table.columns), 'column')}, and its contract adds none beyond "
        f"{table.contract.most_columns} (most_columns): {counted(len(keys), 'key has', 'keys have')} no column",
        remedy=f"Collect keys that are alike in one, such as {{name: others, type: json, source: {source}}}, or raise "
        "most_columns",
        acts=Acts.TIME,
        count=len(keys),
        ends_runs=False,
    )


def _full_struct(table: TableDefinition, fields: Collection[SeenField]) -> Finding | None:
    for path, kind in _full_structs(table).items():
        keys = {field.key for field in fields if field.within == path and is_whole(field.key)}
        if keys:
            return Finding(
                kind="full_contract",
                table=str(table.name),
                says=f"its struct {path} has {counted(len(kind.fields), 'field')}, and its contract adds none beyond "
                f"{table.contract.most_columns} (most_columns), nor more than {MOST_PARTS:,} in a table: "
                f"{counted(len(keys), 'key has', 'keys have')} no field",
                remedy=f"Read {path} in a new column, as a map or json, or raise most_columns",
                acts=Acts.TIME,
                count=len(keys),
                ends_runs=False,
            )
    return None


def _read(table: TableDefinition) -> list[Column]:
    """Returns the columns read in any stream of the table."""
    columns = (column for reading in table.readings for column in (*reading.columns, *reading.unstored))
    return [column for column in columns if column.value is None]
