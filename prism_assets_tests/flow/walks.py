"""A random walk over all replacements of objects of a table, beside a model: a dictionary of the expected rows, some of
their columns nested.

The steps are erasures, renames, widenings, rebuilds, repairs, merges, garbage collections and Iceberg commits. After
each step three readers are compared with the model: of Glue, of Iceberg, and of the view for clients of DuckLake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.reading.lake_reader import path_of
from prism_assets.stages.close_open_days import close_open_days
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.report import ErasureStatus, read_erasures
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests import nested
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.flow.random_walk import NIGHT, RandomWalk, Step
from prism_assets_tests.flow.rebuilds import days_of, rebuild
from prism_assets_tests.stages.aging import hours_pass
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.world import World

TABLE = "log.events"
TYPES = {"length": ("smallint", "integer", "bigint"), "price": ("real", "double")}
PARTS = ("account", "tags")
"""The nested columns: all readers tell null from empty in them."""
MONTH = timedelta(days=31)
_FILES = "SELECT day, path FROM prism_lake_files WHERE table_id = {table_id}"
_DONE = "SELECT object_key FROM prism_staging_objects WHERE state = 'done'"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Erased:
    """One erasure: its predicate, and a function that returns whether a row matches."""

    where: str
    matches: Callable[[Row], bool]
    digest: str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The rows seen by one reader: by id, with their days, and the count of each id."""

    rows: Mapping[int, Row] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)


class Walk(RandomWalk):
    """One walk over `log.events`."""

    begin = utc("2020-03-01T10:00")
    """Many months before the database's clock, because steps of columns go by that clock."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed, self.begin)
        self.rows: dict[int, Row] = {}
        self.ids_of: dict[str, set[int]] = {}
        """The ids in each staging object."""
        self.erased: list[Erased] = []
        self.seen: dict[str, Shown] = {"Glue": Shown(), "Iceberg": Shown()}
        self.mark = 1
        self.types = dict.fromkeys(TYPES, 0)
        self.names = {name: [name] for name in TYPES}
        self._apply()
        self.arrive()
        self.publish_catalog()

    def weights(self) -> Mapping[Step, int]:
        return {
            self.arrive: 6, self.late_rows_arrive: 3, self.merge: 4, self.publish_catalog: 4,
            self.the_day_ends: 4, self.a_row_is_erased: 3, self.some_rows_are_erased: 2, self.go_on_erasing: 4,
            self.rows_are_erased_by_a_field: 1, self.days_close_early: 1,
            self.a_column_is_renamed: 2, self.a_column_is_widened: 2, self.a_month_passes: 2,
            self.a_day_is_rebuilt: 3, self.an_object_is_lost_and_repaired: 3, self.collect_garbage: 3,
            self.commit_to_iceberg: 4, self.optimize_iceberg: 2, self.all_stages_run: 3,
        }  # fmt: skip

    # Steps.

    def arrive(self) -> None:
        self._drop(self.random.choice((1, 3, 5)), days_ago=0)
        self._stream()

    def late_rows_arrive(self) -> None:
        self._drop(2, days_ago=self.random.choice((1, 2)))
        self._stream()

    def merge(self) -> None:
        """Merges. The next merge takes the objects rewritten during this one."""
        problems = self.world.merge(self.clock, everything=True).problems
        assert [problem for problem in problems if not problem.transient] == []

    def publish_catalog(self) -> None:
        self.world.catalog_and_idle(self.clock)

    def the_day_ends(self) -> None:
        self.now = self.now.replace(hour=0, minute=0) + timedelta(days=1, minutes=10)
        self.publish_catalog()
        self.arrive()

    def a_row_is_erased(self) -> None:
        if self.rows:
            number = self.random.choice(sorted(self.rows))
            self._erase(f"id = {number}", lambda row: bool(row["id"] == number))

    def rows_are_erased_by_a_field(self) -> None:
        """Erases by a field of a struct that is null in some rows, and in others has a null field."""
        found = self.random.randrange(10)

        def matches(row: Row) -> bool:
            number = (row["account"] or {}).get("id")
            return number is not None and number % 10 == found

        self._erase(f"account.id % 10 = {found}", matches)

    def some_rows_are_erased(self) -> None:
        """Erases by a column whose name and type may change before the search."""
        value, name = self.random.randrange(100), self.names["length"][-1]
        self._erase(f"{name} >= {value} AND {name} < {value + 5}", lambda row: bool(value <= row["length"] < value + 5))

    def days_close_early(self) -> None:
        """Closes open days with rows of erasures early. Later arrivals for these days are late."""
        report = close_open_days(self.world.context, [TABLE], clock=lambda: self.now)
        assert report.errors == (), self.trace

    def a_column_is_renamed(self) -> None:
        name = self.random.choice(sorted(TYPES))
        self.names[name].append(f"{name}_{len(self.names[name])}")
        if not self._is_taken():
            self.names[name].pop()

    def a_column_is_widened(self) -> None:
        name = self.random.choice(sorted(TYPES))
        before = self.types[name]
        self.types[name] = min(before + 1, len(TYPES[name]) - 1)
        if not self._is_taken():
            self.types[name] = before

    def a_month_passes(self) -> None:
        self._stream()  # days are accepted by when their objects arrived
        self.now += MONTH
        self.arrive()
        self.publish_catalog()

    def a_day_is_rebuilt(self) -> None:
        self.mark += 1
        if self._is_taken():
            rebuild(self.world, self.random.choice(days_of(self.world)), self.now)

    def an_object_is_lost_and_repaired(self) -> None:
        """Repairs a lost small object. Its length may change, and is published. Merged objects cannot be made again."""
        files = [path for _, path in self._files() if not path.startswith("merged/")]
        if files:
            (self.root / self.random.choice(files)).unlink()
            assert run_repair(self.world.context).errors == ()
            self.publish_catalog()
            if self.has_iceberg:
                self.commit_to_iceberg()

    def optimize_iceberg(self) -> None:
        self.world.iceberg(self.clock, optimize=True)
        self.has_iceberg = True

    def all_stages_run(self) -> None:
        self._stream()
        self.merge()
        self.publish_catalog()
        self.commit_to_iceberg()

    def come_to_rest(self) -> None:
        """Runs until columns have their names and types, erasures are proved, and all readers see exactly the expected
        rows.
        """
        for _ in range(9):
            for _ in range(4):
                self.take(self.all_stages_run)
            if not any(column.rename or column.widening for column in self.table.columns):
                break
            self.take(self.a_month_passes)
        assert not any(column.rename or column.widening for column in self.table.columns), self.trace
        self.now += timedelta(days=1)
        for _ in range(4):
            self.take(self.all_stages_run)
        for _ in range(6):
            if not read_erasures(self.world.context, [self.table], open_only=True):
                break
            self.take(self._erase_to_the_end)
        left = read_erasures(self.world.context, [self.table], open_only=True)
        assert left == (), self.trace
        for _ in range(2):
            self.take(self.all_stages_run)
        wanted = {number for number, row in self.rows.items() if not self._is_erased(row)}
        for name, shown in self.seen.items():
            assert shown.rows.keys() == wanted, (name, self.trace)
        for key in self.root.rglob("*.parquet"):
            ids = pq.read_table(key, columns=["id"], partitioning=None)["id"].to_pylist()
            assert not [number for number in ids if self._is_erased(self.rows[number])], (key, self.trace)

    def _erase_to_the_end(self) -> None:
        """Lets the leases of readers pass between a publication and the proof. An erasure may rewrite only here."""
        self.publish_catalog()
        self.world.iceberg(self.clock, optimize=True)
        hours_pass(self.world, NIGHT)
        self.continue_erasures(is_late=True)

    # Judgements.

    def judge(self) -> None:
        """Checks that readers of catalogs see no row twice, no removed row, and no fewer rows than before.

        DuckLake's catalog is PostgreSQL, so its clients see committed rows. Rows of a running erasure may be seen or
        not.
        """
        statuses = {item.digest: item for item in read_erasures(self.world.context, [self.table])}
        self._judge_catalog("Glue", self._read_glue(), statuses)
        if self.has_iceberg:
            self._judge_catalog("Iceberg", self._read_iceberg(), statuses)
        shown = self._read_files()
        self._judge_rows("DuckLake", shown)
        rewritten = {digest for digest, item in statuses.items() if item.state != "rewriting"}
        committed = {number for key in self._done() for number in self.ids_of[key]}
        kept = {number for number in committed if not self._is_erased(self.rows[number])}
        allowed = {number for number in committed if not self._is_erased(self.rows[number], rewritten)}
        assert kept <= shown.rows.keys() <= allowed, ("DuckLake", kept - shown.rows.keys(), shown.rows.keys() - allowed)

    def _judge_catalog(self, reader: str, shown: Shown, statuses: Mapping[str, ErasureStatus]) -> None:
        self._judge_rows(reader, shown)
        lost = {
            number
            for number in self.seen[reader].rows.keys() - shown.rows.keys()
            if not self._is_erased(self.rows[number])
        }
        assert not lost, (reader, "rows are seen no more", lost)
        over = {digest for digest, item in statuses.items() if item.state in ("waiting", "proved")}
        left = [number for number in shown.rows if self._is_erased(self.rows[number], over)]
        assert not left, (reader, "erased rows are seen", left)
        self.seen[reader] = shown

    def _judge_rows(self, reader: str, shown: Shown) -> None:
        assert max(shown.counts.values(), default=1) == 1, (reader, "a row is seen twice", shown.counts.most_common(3))
        for number, row in shown.rows.items():
            assert row == {name: self.rows[number][name] for name in row}, (reader, row, self.rows[number])

    def _is_erased(self, row: Row, of: set[str] | None = None) -> bool:
        return any(item.matches(row) for item in self.erased if of is None or item.digest in of)

    # Readers.

    def _read_glue(self) -> Shown:
        reader = self.world.reader()
        table = reader.table(TABLE)
        shown = {name for name, _ in table.columns}
        return self._shown(
            (item.date, pq.read_table(path_of(entry.url), filesystem=reader.filesystem, partitioning=None), shown)
            for item in table.partitions
            for entry in item.objects
        )

    def _read_iceberg(self) -> Shown:
        """Reads the head of the Iceberg table by day. Values come by field ids, under the current names."""
        table = self.world.iceberg_table(TABLE)
        found = table.scan().to_arrow()
        days = [time.date() for time in found.column("time").to_pylist()]
        parts = (
            (day, found.filter(pa.array([other == day for other in days])), set(found.column_names))
            for day in sorted(set(days))
        )
        return self._shown(parts)

    def _read_files(self) -> Shown:
        """Reads the objects listed for clients of DuckLake, under any names."""
        return self._shown(
            (
                (
                    date.fromisoformat(day),
                    found := pq.read_table(self.root / path, partitioning=None),
                    set(found.column_names),
                )
                for day, path in self._files()
            )
        )

    def _shown(self, parts: Iterator[tuple[date, pa.Table, set[str]]]) -> Shown:
        rows: dict[int, Row] = {}
        counts: Counter[int] = Counter()
        for day, table, shown in parts:
            values = {name: table.column(name).to_pylist() for name in ("id", *PARTS)}
            for name, names in self.names.items():
                known = [other for other in names if other in shown and other in table.column_names]
                assert known, (name, shown, table.column_names)
                for other in known:
                    values[name] = table.column(other).to_pylist()
            for row in (dict(zip(values, found, strict=True)) for found in zip(*values.values(), strict=True)):
                rows[row["id"]] = row | {"day": day}
                counts[row["id"]] += 1
        return Shown(rows=rows, counts=counts)

    # How.

    @property
    def table(self) -> TableDefinition:
        (table,) = self.world.context.choose_tables([TABLE])
        return table

    @property
    def root(self) -> Any:
        return self.world.root / "buckets" / "lake" / self.world.context.lake.keys(self.table).root

    def _files(self) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self._sql(_FILES.format(table_id=self.table.table_id) + " ORDER BY path")]

    def _done(self) -> list[str]:
        return [row[0] for row in self._sql(_DONE)]

    def _sql(self, statement: str) -> list[Any]:
        with self.world.context.database.begin() as connection:
            return list(connection.exec_driver_sql(statement).all())

    def _drop(self, count: int, *, days_ago: int) -> None:
        start = self.now - timedelta(days=days_ago)
        rows = [row | {"length": row["id"] % 100, "price": row["id"] % 7 / 4} for row in some_rows(count, start)]
        self.rows |= {row["id"]: {**row, **nested.stored(row["id"]), "day": start.date()} for row in rows}
        key = self.world.drop([], body=as_lines(nested.with_parts(rows)))
        self.ids_of[key] = {row["id"] for row in rows}

    def _stream(self) -> None:
        rest_is_over(self.world)
        assert self.world.stream(self.clock).errors == ()

    def _erase(self, where: str, matches: Callable[[Row], bool]) -> None:
        plan = plan_erasure(self.world.context, TABLE, where)
        self.erased.append(Erased(where, matches, plan.digest))
        self.trace[-1] += f" ({where})"
        report = run_erase(self.world.context, TABLE, where, rows=plan.all_matching)
        assert [problem for problem in report.problems if not problem.transient] == []

    def _is_taken(self) -> bool:
        """Applies the table file. Returns False if the file is refused for now."""
        with suppress(DefinitionError):
            self._apply()
            return True
        return False

    def _apply(self) -> None:
        columns = [f"{{name: mark, type: bigint, value: '{self.mark}'}}", *nested.COLUMNS[: len(PARTS)]]
        for name, names in self.names.items():
            was = f", was: {names[-2]}" if len(names) > 1 else ""
            columns.append(f"{{name: {names[-1]}, type: {TYPES[name][self.types[name]]}, source: {name}{was}}}")
        merge = "{interval: 0, target_bytes: 2500, max_objects: 3}"
        text = a_table(TABLE, columns=columns, merge=merge, iceberg="{metrics: [time, id], keep_hours: 4}")
        assert self.world.apply(text, now=self.clock).problems == ()
