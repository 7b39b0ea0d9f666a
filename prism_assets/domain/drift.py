"""Fields that lines have and no column of the table reads: what is counted of them, and what follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from prism_assets.domain.columns import Column
from prism_assets.domain.sources import Rest, keys_of, sources_of
from prism_assets.domain.tables import TableDefinition

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
    defined = defined_keys(table)
    return [field for field in seen if field.table_id == table.table_id and field.key not in defined]


def _read(table: TableDefinition) -> list[Column]:
    """Those that are read in any stream of the table."""
    columns = (column for reading in table.readings for column in (*reading.columns, *reading.unstored))
    return [column for column in columns if column.value is None]
