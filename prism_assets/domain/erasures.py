"""Erasures: rows of a table that match a predicate leave the lake, and none that matches comes into it any more.

An erasure is a rule for ever. Older objects are rewritten without the rows, catalogs are told of the new ones, what
lies under the old keys goes when the reader lease is over, and in the end every object is read: that is its proof.
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

from prism_assets.domain.columns import Column
from prism_assets.domain.names import TableName
from prism_assets.domain.words import counted

MOST_OF_A_TABLE = 0.1
"""An erasure of a greater part of all rows must be meant: their number is typed again."""

PROVED_WITHIN = datetime.timedelta(days=3)
"""How long an erasure may take by itself, beside the time for which objects are kept: garbage collections alone go a
step a night."""


class ErasureState(enum.Enum):
    """How far an erasure has come."""

    REWRITING = "rewriting"
    """Objects that hold rows of it are looked for, and rewritten without them."""
    PUBLISHING = "publishing"
    """All are rewritten; catalogs still send readers to old ones."""
    WAITING = "waiting"
    """Readers of before may still read the old objects; then these are deleted, and all others read."""
    PROVED = "proved"
    """Every object of the table was read, and none holds a row of it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class ColumnValues:
    """A column has one of these values, all whole numbers or all texts, in every row that matches."""

    column_id: int
    values: tuple[int | str, ...]

    def lie_outside(self, lower: object, upper: object) -> bool:
        """Whether none of them lies between two bounds, where both are known and are of their type."""
        kind = type(self.values[0])
        if type(lower) is not kind or type(upper) is not kind:
            return False
        return all(value < lower or value > upper for value in self.values)  # type: ignore[operator]  # of one type


@dataclass(frozen=True, kw_only=True)
class ErasureRule:
    """What matches: an SQL expression over columns, as they were defined when it was made; each a JSON document.

    Columns are found by their ids, whatever became of their names. `values` are what rows that match must have, as far
    as that is known; `secrets` are those that the expression needs.
    """

    erasure_id: int
    predicate: str
    columns: tuple[str, ...]
    values: tuple[ColumnValues, ...] = ()
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the predicate, which may hold what identifies a person."""
        return f"ErasureRule({self.erasure_id})"

    @property
    def defined(self) -> tuple[Column, ...]:
        """The columns that the expression names."""
        return tuple(Column.from_document(json.loads(document)) for document in self.columns)


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """An erasure as it is recorded, with what was done for it so far.

    Batches up to `after_batch_id` were started without its rule. `digest` stands for its predicate wherever that must
    not be told. Lines are those of the quarantine: matching ones were erased, others that nobody can judge withheld.
    """

    erasure_id: int
    table_id: int
    rule: ErasureRule
    digest: str
    after_batch_id: int
    state: ErasureState
    create_time: datetime.datetime
    rewritten_time: datetime.datetime | None = None
    published_time: datetime.datetime | None = None
    proved_time: datetime.datetime | None = None
    look_time: datetime.datetime | None = None
    objects_rewritten: int = 0
    rows_erased: int = 0
    lines_erased: int = 0
    lines_withheld: int = 0
    proof: Mapping[str, Any] | None = None
    last_error: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is not proved yet."""
        return self.state is not ErasureState.PROVED

    def waits_for_a_person(
        self, time: datetime.datetime, kept: datetime.timedelta, held_until: datetime.datetime | None = None
    ) -> bool:
        """Whether it is not proved though it had the time for it, so that somebody has to look at what holds it.

        Garbage collection keeps replaced objects for the time `kept`, and those of open days since `held_until`, when
        the last of these days ends.
        """
        since = max(self.create_time, held_until or self.create_time)
        return self.is_open and time >= since + PROVED_WITHIN + kept


_TOKEN = re.compile(
    r"(?P<kept>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|\w+(?:\.\w+)*|<=|>=|<>|!=|==|\|\||::|->>|->|--|/\*|\S",
    re.DOTALL,
)


def digest_of(table: TableName, rule: ErasureRule, key: str) -> str:
    """An HMAC of a predicate: the same for the same one, and nothing that the predicate could be guessed from.

    Words mean another predicate where their names have become names of other columns. Space and case count between
    quotes only, because a person repeats the predicate after a restore, maybe years later. The table counts by its
    folder in the lake, which stays when the table is renamed.
    """
    columns = ",".join(map(str, sorted(column.column_id for column in rule.defined)))
    text = f"{table.physical}\n{columns}\n{_normalized(rule.predicate)}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _normalized(predicate: str) -> str:
    """A predicate as its tokens with one space between them; as it is where it holds a comment."""
    tokens = [match[0] if match["kept"] else match[0].lower() for match in _TOKEN.finditer(predicate)]
    return predicate.strip() if {"--", "/*"}.intersection(tokens) else " ".join(tokens)


def confirmation_needed(matching: int, rows: int) -> str | None:
    """Why the number of rows must be typed again, or None."""
    if matching and matching == rows:
        return f"it matches every one of the {counted(rows, 'row')} of the table"
    if matching > rows * MOST_OF_A_TABLE:
        return f"it matches {matching} of {counted(rows, 'row')}, more than {MOST_OF_A_TABLE:.0%}"
    return None
