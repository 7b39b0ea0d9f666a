"""Erasures: rows matching a predicate leave the lake, and none comes in again.

An erasure is a rule for ever. Older objects are rewritten without the rows, catalogs point to the new ones, and garbage
collection deletes the old ones after the reader lease. Finally every object is read as proof.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.columns.column import Column
from prism_assets.domain.names import TableName
from prism_assets.domain.text import counted

MOST_OF_A_TABLE = 0.1
"""If an erasure matches a greater share of all rows, the user must type their number again."""

PROVED_WITHIN = datetime.timedelta(days=3)
"""The time an erasure may take beyond the retention of replaced objects. Garbage collection takes one step a night."""

TRIED_AGAIN_AFTER = datetime.timedelta(minutes=15)
"""The pause after a failed look at a day that has closed. Without a failure such a day is due at once."""


class ErasureState(enum.Enum):
    """The states of an erasure."""

    REWRITING = "rewriting"
    """Matching objects are searched and rewritten."""
    PUBLISHING = "publishing"
    """All are rewritten. Catalogs still point to old ones."""
    WAITING = "waiting"
    """Earlier readers may use the old objects. Then these are deleted, and all others are read."""
    PROVED = "proved"
    """Every object of the table was read, and none holds a matching row."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class ColumnValues:
    """Values of a column, all whole numbers or all texts. Every matching row has one of them."""

    column_id: int
    values: tuple[int | str, ...]

    def lie_outside(self, lower: object, upper: object) -> bool:
        """Whether all values lie outside two known bounds of their type."""
        kind = type(self.values[0])
        if type(lower) is not kind or type(upper) is not kind:
            return False
        return all(value < lower or value > upper for value in self.values)  # type: ignore[operator]  # of one type


@dataclass(frozen=True, kw_only=True)
class ErasureRule:
    """A predicate over columns."""

    erasure_id: int
    predicate: str
    """The SQL expression."""
    columns: tuple[str, ...]
    """The columns' definitions when the rule was made, as JSON documents. Columns are found by id, so renames do not
    matter.
    """
    values: tuple[ColumnValues, ...] = ()
    """Values matching rows must have, as far as known."""
    secrets: tuple[str, ...] = ()
    """Secrets used by the expression."""

    def __repr__(self) -> str:
        """Omits the predicate, because it may identify a person."""
        return f"ErasureRule({self.erasure_id})"

    @property
    def defined(self) -> tuple[Column, ...]:
        """The columns used by the expression."""
        return tuple(Column.from_document(json.loads(document)) for document in self.columns)


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """A recorded erasure and its progress."""

    erasure_id: int
    table_id: int
    rule: ErasureRule
    digest: str
    """Stands for the predicate in places where it must not appear."""
    after_batch_id: int
    """Batches up to this one started without the rule."""
    state: ErasureState
    create_time: datetime.datetime
    rewritten_time: datetime.datetime | None = None
    published_time: datetime.datetime | None = None
    proved_time: datetime.datetime | None = None
    look_time: datetime.datetime | None = None
    objects_rewritten: int = 0
    rows_erased: int = 0
    lines_erased: int = 0
    """Matching lines erased from quarantine."""
    lines_withheld: int = 0
    """Quarantined lines withheld, because they cannot be judged."""
    proof: Mapping[str, Any] | None = None
    last_error: str | None = None
    open_rows: int = 0
    """Matching rows of open days, as counted last: they are erased after the close of these days."""
    open_objects: int = 0
    open_time: datetime.datetime | None = None
    open_partitions: tuple[int, ...] = ()
    """The days that were open and had such objects when they were last seen."""

    @property
    def is_open(self) -> bool:
        """Whether it is not proved yet."""
        return self.state is not ErasureState.PROVED

    def waits_for_a_person(
        self, time: datetime.datetime, kept: datetime.timedelta, held_until: datetime.datetime | None = None
    ) -> bool:
        """Whether it is overdue, so that somebody must look for the cause.

        Garbage collection keeps replaced objects for the time `kept`. At `held_until` the last open day with matching
        rows ends; None if no such day is open. Rows of open days are erased after the close, so the time then counts
        from the last count of such rows, and from the end of the rewrites.
        """
        rewrites = (self.open_time, self.rewritten_time if self.open_time else None)
        waits = (held_until,) if held_until else rewrites
        since = max((self.create_time, *(time for time in waits if time is not None)))
        return self.is_open and time >= since + PROVED_WITHIN + kept


_TOKEN = re.compile(
    r"(?P<kept>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|\w+(?:\.\w+)*|<=|>=|<>|!=|==|\|\||::|->>|->|--|/\*|\S",
    re.DOTALL,
)


def digest_of(table: TableName, rule: ErasureRule, key: str) -> str:
    """Returns an HMAC of a predicate: equal for equal predicates, and useless for guessing them.

    The same words are another predicate if their names now mean other columns. Case and space count only inside quotes,
    because a person repeats the predicate after a restore, perhaps years later. The table is identified by its folder,
    which survives a rename.
    """
    columns = ",".join(map(str, sorted(column.column_id for column in rule.defined)))
    text = f"{table.physical}\n{columns}\n{_normalized(rule.predicate)}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _normalized(predicate: str) -> str:
    """Joins a predicate's tokens with one space. Returns predicates with comments unchanged."""
    tokens = [match[0] if match["kept"] else match[0].lower() for match in _TOKEN.finditer(predicate)]
    return predicate.strip() if {"--", "/*"}.intersection(tokens) else " ".join(tokens)


def confirmation_needed(matching: int, rows: int) -> str | None:
    """Returns why the number of rows must be typed again, or None."""
    if matching and matching == rows:
        return f"it matches every one of the {counted(rows, 'row')} of the table"
    if matching > rows * MOST_OF_A_TABLE:
        return f"it matches {matching} of {counted(rows, 'row')}, more than {MOST_OF_A_TABLE:.0%}"
    return None
