"""Plays the life of two logs, nested orders and a join table over a day and a half, and counts every row.

`python -m prism_local.demo.play` expects the local stack to be up; `prism local demo` starts it.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prism_assets.console import complain, size
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.text import counted
from prism_assets.known_secrets import secret_values
from prism_assets.metadata.intake import ledgers
from prism_assets.platform import build_context
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.reading.lake_reader import LakeReader, ReadTable
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings, load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.run import run_stream
from prism_local.credentials import STAGING_BUCKET
from prism_local.demo.lake import LakeClient, open_lake
from prism_local.demo.logs import LogWriter
from prism_local.demo.orders import ITEMS, ORDERS, OrderWriter, read_nested
from prism_local.demo.requests import LOG, RECORDS, RequestWriter, read_joined
from prism_local.readers.answers import Judged, judged
from prism_local.readers.asking import ask
from prism_local.readers.known import PYICEBERG, SPARK, Reader
from prism_local.readers.questions import Question
from prism_local.readers.sheet import reasons
from prism_local.readers.truth import Truth, read_truth

LOGS = ("pv_log", "api_log")
TABLES = {"pv_log": "request_id", "api_log": "call_id", ORDERS: "order_id", ITEMS: "item_id"}
NAMES = [f"log.{table}" for table in TABLES]
SHOWN = [*NAMES, RECORDS]
ALL = [*SHOWN, LOG]
ROWS = {"pv_log": 200_000, "api_log": 110_000, ORDERS: 4_000}
_PER_OBJECT, _ORDERS_PER_OBJECT = 4_000, 400
_REQUESTS = 300
_CLIENT_QUESTIONS = (Question.ALL_ROWS, Question.BY_DAY, Question.STRUCT_LEAF, Question.UNNESTED)
_CLIENT_SECONDS = 180
_CHECKSUM = "SELECT count(*), count(DISTINCT {key}), sum(hash({key})), sum(hash({key}, dt)) FROM {table}"
"""Equal if the same ids are on the same days, equally often."""


@dataclass(frozen=True)
class _Seen:
    """The content of a table for a reader."""

    rows: int
    number_sum: int


class Play:
    """The play. Each act moves the clock, lets objects arrive, runs stages, and shows a reader's view."""

    def __init__(self, context: StageContext, settings: Settings, tables: Path, out: Console) -> None:
        self._context, self._settings, self._tables, self._out = context, settings, tables, out
        today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
        self.first_day = today - timedelta(days=1)
        seed = time.time_ns()
        self._writers = {table: LogWriter(table, random.Random(f"{seed}-{table}")) for table in LOGS}
        self._run = f"{seed:x}"
        self._orders = OrderWriter(self._run, random.Random(f"{seed}-orders"))
        self._requests = RequestWriter(self._run, random.Random(f"{seed}-requests"))
        self._before: dict[str, _Seen] = {}
        self._lake: LakeClient | None = None

    def run(self) -> bool:
        """Plays all acts. Returns whether every row is there once and every broken line is in quarantine."""
        self._apply_without_region()
        before = self._ledger()
        self._before = {table: self._seen(table) for table in TABLES}
        with ThreadPoolExecutor(1) as pool:
            # A first demo makes an environment for this client, and the first act does not wait for it.
            opening = pool.submit(open_lake, self._settings, self._out)
            try:
                self._play_first_day(opening)
                self._play_second_day()
                return self._verdict(before) and self._is_seen_by_clients()
            finally:
                if opening.exception() is None and (lake := opening.result()):
                    lake.close()

    def _play_first_day(self, opening: Future[LakeClient | None]) -> None:
        day, evening = self.first_day, self.first_day + timedelta(hours=23, minutes=59)
        self._act("Morning of the first day: objects arrive and are readable at once", day + timedelta(hours=6))
        self._arrive(day, day + timedelta(hours=6), 0.2)
        self._arrive_requests(day + timedelta(hours=5), _REQUESTS)
        self._stream_and_publish()
        self._lake = opening.result()
        self._act("Evening: more objects, some sent twice; api_log has a new column", evening)
        self._apply(self._tables)
        self._arrive(day + timedelta(hours=6), evening, 0.5, region=True, twice=True)
        self._arrive_requests(evening - timedelta(minutes=9), _REQUESTS)
        self._stream_and_publish()

    def _play_second_day(self) -> None:
        day, midnight = self.first_day, self.first_day + timedelta(days=1)
        self._act("Past midnight: late rows, then the first day closes", midnight + timedelta(minutes=10))
        self._arrive_late(0.02)
        self._arrive_requests(midnight, 0)
        self._stream_and_publish()
        self._act("Rows after the close are delayed, and readable after one run", midnight + timedelta(minutes=20))
        self._arrive_late(0.007)
        self._stream_and_publish()
        self._act("Merge joins small objects; the catalog switches readers to them", midnight + timedelta(minutes=30))
        self._merge_and_publish()
        self._act("A row later still: readable after one run, merged afterwards", midnight + timedelta(hours=3))
        self._arrive_late(0.003)
        self._stream_and_publish()
        noon = day + timedelta(days=1, hours=12)
        self._act("Noon of the second day: its rows are live, the late ones are merged", noon)
        self._arrive(midnight, noon, 0.27, region=True)
        self._arrive_requests(noon - timedelta(minutes=30), _REQUESTS, late=0)
        self._stream_and_publish()
        self._merge_and_publish()

    def _arrive_late(self, share: float) -> None:
        """Lets late rows of the first day arrive: three percent in all."""
        self._arrive(self.first_day, self.first_day + timedelta(hours=14), share, region=True)

    def _act(self, title: str, now: datetime) -> None:
        self._now = now
        self._out.print(f"\n[bold]{title}[/bold]  [dim](--now {now:%Y-%m-%dT%H:%MZ})[/dim]")

    def _apply(self, folder: Path) -> None:
        for line in run_apply(self._context, folder, datetime.now(timezone.utc)).lines:
            self._out.print(f"  {line}")

    def _apply_without_region(self) -> None:
        """Applies the tables without the column `region`, unless an earlier play has added it."""
        self._context.database.migrate()
        tables = {str(table.name): table for table in self._context.choose_tables(None)}
        if "log.api_log" in tables and any(column.name == "region" for column in tables["log.api_log"].columns):
            self._apply(self._tables)
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "tables"
            shutil.copytree(self._tables, copy)
            file = copy / "log" / "api_log.yaml"
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(line for line in lines if "name: region" not in line))
            self._apply(copy)

    def _arrive(
        self, start: datetime, end: datetime, share: float, *, region: bool = False, twice: bool = False
    ) -> None:
        for table, writer in self._writers.items():
            bodies = list(writer.objects(start, end, round(ROWS[table] * share), _PER_OBJECT, region=region))
            again = bodies[:3] if twice else []
            writer.written.sent_twice += len(again)
            for name, body in [*bodies, *again]:
                self._put(table, name, body)
        for name, body in self._orders.objects(start, end, round(ROWS[ORDERS] * share), _ORDERS_PER_OBJECT):
            self._put(ORDERS, name, body)

    def _put(self, folder: str, name: str, body: bytes) -> None:
        self._context.stores.put(STAGING_BUCKET, f"{folder}/{name[:-3]}_{self._run}.gz", body)

    def _arrive_requests(self, start: datetime, count: int, *, late: float = 0.3) -> None:
        """Lets new requests of ten minutes arrive, with some answers held back, and answers held back earlier."""
        for key, body in self._requests.objects(start, 10, count, late=late):
            self._context.stores.put(STAGING_BUCKET, key, body)

    def _stream_and_publish(self) -> None:
        run_discover(self._context, now=self._now, names=ALL)
        found = run_discover(self._context, now=self._now, names=ALL)
        assert found.new == 0, "a second look finds nothing new"
        report = run_stream(self._context, now=self._now, names=ALL)
        self._out.print(
            f"  stream: {counted(report.objects, 'object')}, {counted(report.lines_in, 'line')}, "
            f"{counted(report.rows_out, 'row')}, {report.quarantined} quarantined, {report.seconds:.1f} s"
        )
        self._count_in_lake()
        self._fold()
        self._publish()
        self._show()

    def _fold(self) -> None:
        """Folds the changes of requests into records."""
        report = run_fold(self._context, now=self._now, names=[RECORDS], ignore_pace=True)
        for fold in report.folds:
            self._out.print(f"  fold: {fold}")
        if report.errors:
            raise WrongUse("; ".join(report.errors))

    def _count_in_lake(self) -> None:
        """Prints the rows a DuckLake client reads before any publication."""
        if self._lake:
            rows, seconds = self._lake.count(TABLES)
            self._out.print(
                f"  DuckLake: {counted(rows, 'row is', 'rows are')} readable at the commit, counted in "
                f"{seconds * 1000:.0f} ms"
            )

    def _merge_and_publish(self) -> None:
        report = run_merge(self._context, now=self._now, names=ALL)
        written = [length for entry in report.merged for length in entry.sizes]
        joined = sum(entry.objects_in for entry in report.merged)
        self._out.print(
            f"  merge: {counted(joined, 'small object')} into {len(written)} of "
            f"{', '.join(map(size, written)) or 'nothing'}"
        )
        self._count_in_lake()
        self._publish()
        self._show()

    def _publish(self) -> None:
        report = run_catalog(self._context, now=self._now, names=ALL)
        for table in report.tables:
            for verb, days in (("closed", table.closed), ("switched", table.switched)):
                for day in days:
                    self._out.print(f"  catalog: {table.table} {day} {verb}")
        if report.errors:
            raise WrongUse("; ".join(report.errors))
        self._publish_as_iceberg()

    def _publish_as_iceberg(self) -> None:
        report = run_iceberg(self._context, now=self._now, names=NAMES, ignore_pace=True)
        for table in report.tables:
            for line in table.lines:
                self._out.print(f"  iceberg: {table.table} {line}")
        if report.errors:
            raise WrongUse("; ".join(report.errors))

    def _show(self) -> None:
        """Prints an analyst's current view through the catalog."""
        grid = Table(
            "table", "date", "state", "rows", "objects", "median object", "read from", box=None, padding=(0, 2)
        )
        states = self._states()
        reader = LakeReader(self._settings)
        for name in SHOWN:
            table = reader.table(name)
            rows = dict(run_query(reader, f"SELECT dt, count(*) FROM {name} GROUP BY dt").rows)
            for cells in _partition_cells(table, states, rows):
                grid.add_row(name, *cells)
        self._out.print(grid)
        self._compare_requests(reader)
        self._compare_with_iceberg(reader)

    def _compare_requests(self, reader: LakeReader) -> None:
        """Raises WrongUse unless each request is one row with its page and its server's last answer."""
        found, expected = read_joined(reader, self._run), self._requests.known
        if found != expected:
            raise WrongUse(f"{RECORDS} shows {found}, and {expected} was sent")
        self._out.print(
            f"  [dim]{RECORDS}: {expected.requests:,} requests, each one row: {expected.pages:,} pages and "
            f"{expected.answers:,} servers reported them[/dim]"
        )

    def _compare_with_iceberg(self, reader: LakeReader) -> None:
        """Raises WrongUse unless Glue and Iceberg show the same ids."""
        with IcebergReader(self._settings) as iceberg:
            for table, key in TABLES.items():
                sql = _CHECKSUM.format(key=key, table=f"log.{table}")
                through_glue, through_iceberg = run_query(reader, sql).rows, run_query(iceberg, sql).rows
                if through_glue != through_iceberg:
                    raise WrongUse(f"log.{table}: Glue shows {through_glue[0]} and Iceberg {through_iceberg[0]}")
        self._out.print("  [dim]through Iceberg: the same rows, by their ids[/dim]")
        if self._lake:
            self._lake.compare(TABLES)
            self._out.print("  [dim]through DuckLake: the same rows, by their ids[/dim]")

    def _states(self) -> dict[tuple[str, date], str]:
        tables = read_status(self._context, now=self._now, names=ALL)
        return {(item.table, item.date): item.state for table in tables for item in table.partitions}

    def _seen(self, table: str) -> _Seen:
        try:
            reader = LakeReader(self._settings)
            key = TABLES[table]
            sql = f"SELECT count(DISTINCT {key}), sum(CAST(left({key}, 12) AS BIGINT)), count(*) FROM log.{table}"
            distinct, total, rows = run_query(reader, sql).rows[0]
        except WrongUse:
            return _Seen(0, 0)
        if distinct != rows:
            raise WrongUse(f"log.{table} shows {counted(rows, 'row')} but only {distinct} different ones")
        return _Seen(int(rows), int(total or 0))

    def _ledger(self) -> tuple[int, int, int]:
        with self._context.database.begin() as connection:
            entries = ledgers.ledger(connection)
        return (
            sum(entry.lines_in for entry in entries),
            sum(entry.rows_out for entry in entries),
            sum(entry.rows_quarantined for entry in entries),
        )

    def _verdict(self, before: tuple[int, int, int]) -> bool:
        lines, rows, quarantined = (after - old for after, old in zip(self._ledger(), before, strict=True))
        written_to = {table: writer.written for table, writer in self._writers.items()} | dict(self._orders.written)
        wrote = written_to.values()
        good, broken = sum(w.good for w in wrote) + self._requests.lines, sum(w.broken for w in wrote)
        fine = (lines, rows, quarantined) == (good + broken, good, broken)
        self._out.print("\n[bold]The count[/bold]")
        twice = sum(w.sent_twice for w in wrote)
        self._out.print(
            f"  written:  {counted(good + broken, 'line')}, {broken} of them broken; {counted(twice, 'object')} sent "
            "twice"
        )
        self._out.print(f"  ledger:   {lines:,} lines = {counted(rows, 'row')} + {quarantined} quarantined")
        for table, written in written_to.items():
            old, seen = self._before[table], self._seen(table)
            new = seen.rows - old.rows
            self._out.print(f"  readers:  log.{table} shows {new:,} of {counted(written.good, 'row')}, each once")
            fine = fine and seen == _Seen(old.rows + written.good, old.number_sum + written.number_sum)
        found, expected = read_joined(LakeReader(self._settings), self._run), self._requests.known
        self._out.print(
            f"  records:  {RECORDS} shows {found.requests:,} of {expected.requests:,} requests, each once, made of "
            f"{counted(self._requests.lines, 'line')} of two streams"
        )
        fine = fine and found == expected and self._is_nested_as_written()
        verdict = "[green]every row is there exactly once" if fine else "[red]the counts do not agree"
        self._out.print(f"  {verdict}[/]")
        return fine

    def _is_nested_as_written(self) -> bool:
        """Whether a struct's leaf, an unnested list and the child table hold what was written."""
        reader, expected = LakeReader(self._settings), self._orders.known
        found = read_nested(lambda sql: run_query(reader, sql).rows, "log", self._run)
        pieces = sum(expected.unnested.values())
        self._out.print(
            f"  nested:   of {counted(pieces, 'piece')} the lists of log.{ORDERS} unnest to "
            f"{sum(found.unnested.values()):,}, and log.{ITEMS} has {sum(found.children.values()):,}"
        )
        return found == expected and (self._lake is None or self._lake.nested(self._run) == expected)

    def _is_seen_by_clients(self) -> bool:
        """Whether Spark and PyIceberg read from Iceberg the same rows as prism's own reader from Glue.

        Compares counts of rows and ids, and sums over the numbers in the ids, in all and for each day.
        """
        truth = read_truth(self._settings, TABLES, _CLIENT_QUESTIONS)
        is_connect = self._settings.spark_remote.startswith("sc://")
        found = [_ask_client(client, truth) for client in (SPARK, PYICEBERG) if is_connect or client is not SPARK]
        for client in found:
            if client.is_sound:
                self._out.print(f"  [green]{client.name} {client.version} reads the same rows from Iceberg[/]")
        for line in reasons(found):
            self._out.print(f"  {line}", style="red", markup=False, soft_wrap=True)
        if self._settings.ducklake:
            self._out.print("  `prism ducklake sql --with-secrets` prints what to paste into DuckDB to read on")
        return all(client.is_sound for client in found)


def _ask_client(client: Reader, truth: Truth) -> Judged:
    replies = ask(
        client,
        Path(sys.executable),
        truth.tables,
        seconds=_CLIENT_SECONDS,
        secrets=secret_values(),
        questions=_CLIENT_QUESTIONS,
    )
    return judged(client.name, truth.right, replies, _CLIENT_QUESTIONS)


def _partition_cells(
    table: ReadTable, states: dict[tuple[str, date], str], rows: dict[date, int]
) -> Iterator[tuple[str, ...]]:
    for item in table.partitions:
        lengths = sorted(entry.content_length for entry in item.objects)
        median = size(lengths[len(lengths) // 2]) if lengths else ""
        kind = item.location.rsplit("/", 1)[1] or f"{item.location.split('/')[-3]}/"
        state = states.get((table.name, item.date), "")
        yield item.date.isoformat(), state, f"{rows.get(item.date, 0):,}", str(len(lengths)), median, kind


def main() -> int:
    """Plays on the local stack. Returns exit status 1 if a single row is missing or doubled."""
    out = Console(highlight=False, width=140)
    try:
        settings = load_settings()
        context = build_context(settings)
        return 0 if Play(context, settings, settings.tables_dir, out).run() else 1
    except PrismError as error:
        complain(str(error))
        return 2 if isinstance(error, WrongUse) else 1


if __name__ == "__main__":
    sys.exit(main())
