"""The questions to every reader about a table: as SQL for all engines, and as fields for readers without SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta, timezone
from enum import Enum

_HOUR, _HOURS = 8, 2
_EARLY = datetime(1990, 1, 1)


class Question(Enum):
    """The questions, in the order of the result's columns. The value is the heading."""

    ALL_ROWS = "all rows"
    BY_DAY = "by dt"
    ONE_DAY = "one dt"
    TIME_RANGE = "hours of a day"
    SINCE_1990 = "time > 1990"
    ADDED_COLUMN = "added column"
    SNAPSHOT = "older snapshot"
    STRUCT_LEAF = "struct leaf"
    LEAF_FILTER = "leaf filter"
    UNNESTED = "unnested list"


EXPLAINED = {
    Question.ALL_ROWS: "how many there are, how many different ids, and two sums over the numbers in the ids",
    Question.BY_DAY: "rows and the sum of their numbers for each `dt`, which is in no file",
    Question.ONE_DAY: "the same where `dt` is one day",
    Question.TIME_RANGE: f"the same where `time` lies in {_HOURS} hours of that day",
    Question.SINCE_1990: "the same where `time` is after 1990, which is every row",
    Question.ADDED_COLUMN: "rows and sums for each value of `region` in log.api_log, null in objects from before it",
    Question.SNAPSHOT: "the oldest snapshot that is retained, by its id, against the files that it lists",
    Question.STRUCT_LEAF: "rows and sums for each `customer.plan.code` in log.orders, null where a level is null",
    Question.LEAF_FILTER: "the totals of log.orders where `customer.id` is small: files have bounds of this leaf",
    Question.UNNESTED: "the elements of the list `items` in log.orders, counted and added up by their `sku`",
}

_NUMBER = "CAST(substr({key}, 1, 12) AS BIGINT)"
_TOTALS = f"count(*), count(DISTINCT {{key}}), sum({_NUMBER}), sum({_NUMBER} * {_NUMBER})"
_GROUPED = f"SELECT {{column}}, count(*), sum({_NUMBER}) FROM {{table}} GROUP BY {{column}}"
_BY_ELEMENT = (
    "SELECT item.{element}, count(*), sum(item.{number}) FROM (SELECT {{explode}}({list}) AS item FROM {{table}}) "
    "AS listed WHERE item.{element} IS NOT NULL GROUP BY item.{element}"
)


@dataclass(frozen=True)
class Nested:
    """The parts of a nested table that the questions name."""

    leaf: tuple[str, ...]
    """The path of a text within structs."""
    number: tuple[str, ...]
    """The path of a number within structs, with bounds in the manifests."""
    below: int
    list: str
    """A list of structs, with a text `element` and a number `amount`."""
    element: str
    amount: str


_OF_NESTED = (Question.STRUCT_LEAF, Question.LEAF_FILTER, Question.UNNESTED)


@dataclass(frozen=True)
class AskedTable:
    """A table of the demo. Its ids begin with a number of twelve digits."""

    name: str
    key: str
    identifier: str
    metadata_location: str
    day: date
    added_column: str | None = None
    """A column added later, or None."""
    snapshot_id: int | None = None
    """A snapshot older than the head, or None."""
    nested: Nested | None = None

    @property
    def start(self) -> datetime:
        """The start of some hours that lie in one day, in UTC and in Tokyo."""
        return datetime(self.day.year, self.day.month, self.day.day, _HOUR, tzinfo=timezone.utc)

    @property
    def end(self) -> datetime:
        """The end of these hours, exclusive."""
        return self.start + timedelta(hours=_HOURS)

    @property
    def questions(self) -> Iterator[Question]:
        """The questions possible for this table."""
        for question in Question:
            lacks_column = question is Question.ADDED_COLUMN and self.added_column is None
            lacks_snapshot = question is Question.SNAPSHOT and self.snapshot_id is None
            lacks_parts = question in _OF_NESTED and self.nested is None
            if not (lacks_column or lacks_snapshot or lacks_parts):
                yield question

    def sql(self, question: Question) -> str:
        """Returns the question as SQL for every engine.

        The placeholders `{table}`, `{explode}`, `{start}`, `{end}` and `{early}` stand for the engine's spelling.
        """
        totals = f"SELECT {_TOTALS.format(key=self.key)} FROM {{table}}"
        match question:
            case Question.ALL_ROWS | Question.SNAPSHOT:
                return totals
            case Question.BY_DAY:
                return _GROUPED.format(column="dt", key=self.key, table="{table}")
            case Question.ONE_DAY:
                return f"{totals} WHERE dt = DATE '{self.day}'"
            case Question.TIME_RANGE:
                return f"{totals} WHERE time >= {{start}} AND time < {{end}}"
            case Question.SINCE_1990:
                return f"{totals} WHERE time > {{early}}"
            case Question.ADDED_COLUMN:
                return _GROUPED.format(column=self.added_column, key=self.key, table="{table}")
            case Question.STRUCT_LEAF:
                return _GROUPED.format(column=".".join(self._parts.leaf), key=self.key, table="{table}")
            case Question.LEAF_FILTER:
                return f"{totals} WHERE {'.'.join(self._parts.number)} < {self._parts.below}"
            case Question.UNNESTED:
                parts = self._parts
                return _BY_ELEMENT.format(element=parts.element, number=parts.amount, list=parts.list)

    @property
    def _parts(self) -> Nested:
        assert self.nested is not None, f"{self.name} has no nested columns"
        return self.nested

    def as_json(self, question: Question) -> dict[str, object]:
        """Returns the question for the programs of `clients`. Times are in UTC, without a zone."""
        return {
            "table": self.name,
            "key": self.key,
            "identifier": self.identifier,
            "metadata_location": self.metadata_location,
            "question": question.name,
            "sql": self.sql(question),
            "day": self.day.isoformat(),
            "start": f"{self.start:%Y-%m-%d %H:%M:%S}",
            "end": f"{self.end:%Y-%m-%d %H:%M:%S}",
            "early": f"{_EARLY:%Y-%m-%d %H:%M:%S}",
            "column": self.added_column,
            "snapshot_id": self.snapshot_id if question is Question.SNAPSHOT else None,
            "nested": asdict(self.nested) if self.nested else None,
        }


def sql_of_duckdb(table: AskedTable, question: Question, source: str) -> str:
    """Returns the question for DuckDB, the engine of prism's own readers."""
    fields = table.as_json(question)
    times = {name: f"TIMESTAMPTZ '{fields[name]}+00:00'" for name in ("start", "end", "early")}
    return table.sql(question).format(table=source, explode="unnest", **times)
