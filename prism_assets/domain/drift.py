"""Fields that lines have and no column of the table reads: what is counted of them, and what follows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from prism_assets.domain.columns import Column
from prism_assets.domain.sources import Pattern, Rest, keys_of, sources_of
from prism_assets.domain.table_options import EVOLVE
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted

MOST_KEYS = 500
"""Of a table, and of one object of it."""
_LONGEST_KEY = 200


class FieldKind(Enum):
    """What the value of an undefined field is, as far as its first character tells."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NESTED = "nested"


def shown_key(key: str) -> str:
    """A key as it is kept: at most 200 characters, and none that PostgreSQL does not take."""
    kept = key.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept if len(kept) <= _LONGEST_KEY else f"{kept[:_LONGEST_KEY]}…"


def is_whole(key: str) -> bool:
    """Whether a key that is kept is surely the key in the line."""
    return len(key) <= _LONGEST_KEY and "\N{REPLACEMENT CHARACTER}" not in key


@dataclass(frozen=True, kw_only=True)
class SeenField:
    """Fields of one key and kind that were seen in lines of a table, and one object and line that has one.

    The times are None of what is not stored yet.
    """

    table_id: int
    key: str
    kind: FieldKind
    count: int
    bucket: str
    object_key: str
    line: int
    first_time: datetime | None = None
    last_time: datetime | None = None

    @property
    def place(self) -> str:
        """Where to look at one."""
        return f"s3://{self.bucket}/{self.object_key}:{self.line}"


def summed(seen: Iterable[SeenField]) -> list[SeenField]:
    """One entry a table, key and kind, in this order; the last object of each is told."""
    totals: dict[tuple[int, str, str], SeenField] = {}
    for field in seen:
        identity = field.table_id, field.key, field.kind.value
        before = totals.get(identity)
        totals[identity] = field if before is None else replace(field, count=before.count + field.count)
    return [totals[identity] for identity in sorted(totals)]


def within_limit(seen: Sequence[SeenField], known: Collection[tuple[int, str]]) -> list[SeenField]:
    """What may be stored beside the `known` keys by table: no table has more than 500."""
    keys = set(known)
    counts: dict[int, int] = {}
    for table, _ in keys:
        counts[table] = counts.get(table, 0) + 1
    kept = []
    for field in seen:
        identity = field.table_id, field.key
        if identity not in keys:
            if counts.get(field.table_id, 0) >= MOST_KEYS:
                continue
            keys.add(identity)
            counts[field.table_id] = counts.get(field.table_id, 0) + 1
        kept.append(field)
    return kept


def defined_keys(table: TableDefinition) -> frozenset[str]:
    """The keys that columns of a table name, as they are kept of fields."""
    return frozenset(shown_key(key) for column in _read(table) for key in keys_of(sources_of(column)))


def still_undefined(table: TableDefinition, seen: Iterable[SeenField]) -> list[SeenField]:
    """What of the fields that were seen the table has no column for now: objects may be of older definitions."""
    if any(isinstance(source, Rest) for column in _read(table) for source in sources_of(column)):
        return []
    defined, collected = defined_keys(table), list(_collected(table))
    return [
        field
        for field in seen
        if field.table_id == table.table_id
        and field.key not in defined
        and not any(pattern.search(field.key) for pattern in collected)
    ]


def _collected(table: TableDefinition) -> Iterator[re.Pattern[str]]:
    """The patterns of keys that columns collect, except those that only the reader's RE2 understands."""
    for column in _read(table):
        for source in sources_of(column):
            if isinstance(source, Pattern):
                with suppress(re.error):
                    yield re.compile(source.expression)


_NUMBERED = re.compile(r"([^0-9]*[^0-9a-fA-F]|)[0-9a-fA-F]*[0-9][0-9a-fA-F-]*")
_PLAIN = re.compile(r"[\w.: @-]+")
"""Characters that need no escape in a pattern, the dot excepted, nor in the quotes of a table file."""
_LEAST_ALIKE = 3


def collecting_source(keys: Iterable[str]) -> str | None:
    """The pattern of the largest group of keys that differ only in a number or an id; None for fewer than three."""
    matches = filter(None, map(_NUMBERED.fullmatch, keys))
    alike = Counter(match[1] for match in matches if _PLAIN.fullmatch(match[1]))
    for prefix, count in alike.most_common(1):
        return f"/^{prefix.replace('.', '[.]')}/" if count >= _LEAST_ALIKE else None
    return None


def room_for_columns(table: TableDefinition) -> int:
    """How many columns new fields may still become by the contract of a table."""
    return max(0, table.contract.most_columns - len(table.columns))


def full_contract(table: TableDefinition, fields: Collection[SeenField]) -> str | None:
    """Why new fields of a table that evolves become no columns any more, and what to do; None where they do."""
    keys = {field.key for field in fields if is_whole(field.key)}
    if table.contract.new_fields != EVOLVE or not keys or room_for_columns(table):
        return None
    pattern = collecting_source(keys)
    source = f'"{pattern}"' if pattern else '"*"'
    return (
        f"{table.name} has {counted(len(table.columns), 'column')}, and its contract adds none beyond "
        f"{table.contract.most_columns} (most_columns): {counted(len(keys), 'key has', 'keys have')} no column. "
        f"Collect keys that are alike in one, such as {{name: others, type: json, source: {source}}}, or raise "
        "most_columns"
    )


def _read(table: TableDefinition) -> list[Column]:
    """Those that are read in any stream of the table."""
    columns = (column for reading in table.readings for column in (*reading.columns, *reading.unstored))
    return [column for column in columns if column.value is None]
