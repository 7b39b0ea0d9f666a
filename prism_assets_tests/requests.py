"""A join table in a world: its log, the expected records, and the records seen by readers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from prism_assets.domain.records.model import Change, RecordModel
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.reading.explain import load_changes
from prism_assets.stages.fold.report import FoldReport
from prism_assets.stages.fold.run import run_fold
from prism_assets_tests.builders import utc
from prism_assets_tests.world import World

COLUMNS = ("request_id", "time", "sent_at", "page", "version", "status")
Line = dict[str, Any]


def a_join_table(
    *, window: str = "1h", lateness: str = "30m", after: str = "settle", buckets: int = 4, dirty: float = 0.001,
    owner: bool = False, more: str = "",
) -> str:  # fmt: skip
    """Returns the file of `log.request`: two groups. The stream of one of them can delete."""
    return f"""\
schema: log
table: request
key: [request_id]
streams:
  - {{name: front, url: "s3://staging/front/", group: front}}
  - {{name: back, url: "s3://staging/back/", group: back, delete: "op = 'D'"}}
groups:
  front: {{sequence: [sent_at]}}
  back: {{sequence: [version], owner: {str(owner).lower()}}}
partition: {{column: time, timezone: UTC}}
columns:
  - {{name: request_id, type: string, required: true}}
  - {{name: time, type: timestamp}}
  - {{name: sent_at, type: timestamp}}
  - {{name: page, type: string, group: front}}
  - {{name: version, type: bigint}}
  - {{name: status, type: bigint, group: back}}
  - {{name: op, type: string, stored: false}}
window: {window}
lateness: {lateness}
after: {after}
buckets: {buckets}
publish: {{every: 1s, dirty: {dirty}, stale: 60m}}
merge: {{interval: 0}}
accept: {{from: arrival}}
{more}"""


def front(request: str, at: str | datetime, page: str | None = None, *, sent: int = 0) -> Line:
    """A line of the front end."""
    time = utc(at) if isinstance(at, str) else at
    return {
        "request_id": request, "time": _text(time), "sent_at": _text(time + timedelta(milliseconds=sent)), "page": page
    }  # fmt: skip


def back(request: str, at: str | datetime, version: int, status: int | None = None, *, op: str = "U") -> Line:
    """Returns a line of the back end. The operation D deletes."""
    time = utc(at) if isinstance(at, str) else at
    return {"request_id": request, "time": _text(time), "version": version, "status": status, "op": op}


def _text(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def some_changes(seed: int, count: int, first: str, *, requests: int, hours: float) -> list[tuple[str, Line]]:
    """Random changes by stream, of so many requests, in so many hours: with deletes, nulls and equal sequences."""
    chance = random.Random(seed)
    changes: list[tuple[str, Line]] = []
    for _ in range(count):
        request = f"r{chance.randrange(requests)}"
        at = utc(first) + timedelta(milliseconds=chance.randrange(int(hours * 3_600_000)))
        if chance.random() < 0.5:
            page = chance.choice([None, "home", "cart", "pay"])
            changes.append(("front", front(request, at, page, sent=chance.randrange(3))))
        else:
            operation = "D" if chance.random() < 0.2 else "U"
            status = chance.choice([None, 200, 404, 500])
            changes.append(("back", back(request, at, chance.randrange(4), status, op=operation)))
    return changes


@dataclass
class Requests:
    """The join table `log.request` of a world."""

    world: World

    @property
    def table(self) -> TableDefinition:
        """The definition in force of its records."""
        return next(table for table in self.world.context.choose_tables(None) if str(table.name) == "log.request")

    def arrive(self, changes: Sequence[tuple[str, Line]], now: str) -> None:
        """Puts an object for each stream, and has them converted into the log."""
        for stream in ("front", "back"):
            if lines := [line for name, line in changes if name == stream]:
                self.world.drop(lines, stream=stream)
        assert self.world.stream(now).errors == ()

    def fold(self, now: str) -> FoldReport:
        """`prism fold`; fails the test on any error."""
        report = run_fold(self.world.context, now=utc(now), ignore_pace=True)
        assert report.errors == ()
        return report

    def show(self, now: str) -> list[tuple[Any, ...]]:
        """Folds and publishes. Returns the records seen by readers."""
        self.fold(now)
        self.world.catalog(now)
        return self.seen()

    def seen(self) -> list[tuple[Any, ...]]:
        """Returns the records seen by readers of Glue, by key and time."""
        return seen(self.world, self.table)

    def seen_in_iceberg(self) -> list[tuple[Any, ...]]:
        """Returns the records of the Iceberg table's head, in the order of `seen`."""
        found = self.world.iceberg_table(str(self.table.name)).scan().to_arrow().to_pylist()
        return sorted((tuple(row[column.name] for column in self.table.columns) for row in found), key=str)

    def changes(self) -> list[Change]:
        """Returns the changes of the log, as seen by readers of Glue."""
        return load_changes(self.world.reader(), self.table)

    def wanted(self) -> list[tuple[Any, ...]]:
        """Returns the records made by the model of the changes in the log."""
        return wanted(self.world, self.table)


def seen(world: World, table: TableDefinition) -> list[tuple[Any, ...]]:
    """Returns the records of a join table seen by readers of Glue, in a fixed order."""
    names = ", ".join(column.name for column in table.columns)
    return sorted(world.query(f"SELECT {names} FROM {table.name}"), key=str)


def wanted(world: World, table: TableDefinition) -> list[tuple[Any, ...]]:
    """Returns the records of a join table made by the model of its log, in the same order."""
    assert table.join is not None
    types = {column.name: column.type for column in table.columns}
    records = RecordModel(table.join, types, table.partition_column).records_of(load_changes(world.reader(), table))
    rows = [
        {**record.values, **dict(zip(table.join.key, record.key, strict=True)), "": record.first_event}
        for record in records
        if record.is_visible
    ]
    return sorted(
        (tuple(_instant(row[""]) if name == table.partition_column else row[name] for name in types) for row in rows),
        key=str,
    )


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, timezone.utc)
