"""Costs of merges, commits and plans with Iceberg, against Spark, append-only clients, and tables without order.

`scripts/bench iceberg` runs IP1 to IP5, `--only IP1` one of them. IP2 to IP4 use tables of files that do not exist,
because commits and plans do not read them; `--scale 0.1` takes a tenth. Peers use the same files in the same run, and
every outcome is compared before a time counts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from pyiceberg.manifest import DataFile as ListedDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from rich.console import Console

from bench.conversion import stored
from bench.iceberg_many import many_tables
from bench.iceberg_merge import small_files_into_one
from bench.iceberg_rows import Row
from bench.platform import TABLE, bench_platform, bench_stack
from bench.report import RESULTS, machine
from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.files.data_file import ColumnMetrics, SmallObject
from prism_assets.domain.iceberg.snapshots import DayChange, ListedFile, SnapshotChange, expired_snapshots
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.metadata.database import Database
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.platform import build_context
from prism_assets.publishers.iceberg.catalogs import iceberg_catalog
from prism_assets.publishers.iceberg.loaded import LoadedTable
from prism_assets.publishers.iceberg.publisher import IcebergPublisher
from prism_assets.publishers.iceberg.schema import iceberg_schema
from prism_assets.settings import Settings, load_settings

_FIRST = date(2026, 3, 1)
_MARK = "bench"
_KEEP = timedelta(hours=4)
_PER_MINUTE = 20
_PARTS = ("IP1", "IP2", "IP3", "IP4", "IP5")


class Bench:
    """Tables with their own publisher, the store of the settings, and a catalog in PostgreSQL."""

    def __init__(self, settings: Settings) -> None:
        self.stores = Stores(settings.store)
        self.lake = Lake(settings.bucket, "", self.stores.config)
        self.publisher = IcebergPublisher(iceberg_catalog(settings, self.stores), self.lake, self.stores, _MARK)
        self._numbers = random.Random(1)
        self._tables = 0

    def table(self) -> tuple[TableDefinition, LoadedTable]:
        """Returns a new table without a snapshot."""
        self._tables += 1
        parsed = parse_table_file(TABLE.format(table=f"t{self._tables}") + "iceberg: true\n", "t.yaml")
        table = stored(parsed, self._tables)
        return table, self.publisher.create(table, instant(_FIRST, 0))

    def commit(
        self, table: TableDefinition, loaded: LoadedTable, now: datetime, *days: DayChange, expire: bool = False
    ) -> LoadedTable:
        """Makes one commit of ours and expires old snapshots."""
        heads = loaded.referenced | ({loaded.snapshot_id} if loaded.snapshot_id else set())
        expired = expired_snapshots(loaded.snapshots, heads, now, _KEEP) if expire else ()
        change = SnapshotChange(days=days, expired=expired)
        return self.publisher.commit(table, loaded, change, now, lambda: None).loaded

    def files(self, day: date, minute: int, count: int, *, minutes: int = 1) -> tuple[SmallObject, ...]:
        """Returns objects with rows of some minutes of a day, each with bounds of four columns."""
        start = instant(day, minute)
        return tuple(self._file(day, start, start + timedelta(minutes=minutes)) for _ in range(count))

    def _file(self, day: date, start: datetime, end: datetime) -> SmallObject:
        number = self._numbers.getrandbits(60)
        low, high = (int(at.timestamp() * 1000) for at in (start, end))
        text = f"{number:032x}"[-16:]
        return SmallObject(
            bucket=self.lake.bucket,
            key=f"t/live/dt={day}/prism-{number:019d}.parquet",
            content_length=65_536,
            row_count=1_200,
            fingerprint=number,
            file_format=MICROSECONDS,
            metrics=(
                ColumnMetrics(1, 0, low, high - 1),
                ColumnMetrics(2, 0, text[:8], text[8:]),
                ColumnMetrics(3, 0, number % 1_000, number % 1_000 + 5_000_000),
                ColumnMetrics(7, 0, 0.0, 60.0),
            ),
            date=day,
            staging_object_id=number,
            generation=0,
            delayed=False,
            upload_start_time=start,
            object_id=number,
        )


def instant(day: date, minute: int) -> datetime:
    """Returns a minute of a day, or of following days."""
    return datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(minutes=minute)


def added(day: date, files: Sequence[SmallObject]) -> DayChange:
    """Returns a day with new files."""
    return DayChange(date=day, publication=Publication(0, 1), added=tuple(files))


def timed(work: Callable[[], object]) -> float:
    """Returns the wall-clock seconds of `work`."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def planned(table: Table, start: datetime, end: datetime, day: date | None) -> int:
    """Returns how many files a reader plans for a time range, with its day if the table has one."""
    chosen = f"time >= '{start.isoformat()}' and time < '{end.isoformat()}'"
    if day is not None:
        chosen += f" and dt = '{day}'"
    return len(list(table.scan(row_filter=chosen).plan_files()))


def append_all(bench: Bench, name: str, batches: Sequence[Sequence[SmallObject]]) -> tuple[Table, list[float]]:
    """The peer: a client that appends each batch without maintenance. Its manifests hold whatever arrived together."""
    table, _ = bench.table()
    catalog = bench.publisher.catalog
    made = catalog.create_table(
        ("bench_iceberg", name),
        iceberg_schema(table),
        location=f"s3://{bench.lake.bucket}/{name}",
        partition_spec=UNPARTITIONED_PARTITION_SPEC,
        properties={"write.metadata.delete-after-commit.enabled": "false"},
    )
    seconds = []
    for batch in batches:
        seconds.append(timed(lambda batch=batch: _append(made, batch)))  # type: ignore[misc]
    return made, seconds


def _append(table: Table, batch: Sequence[SmallObject]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in batch:
            low, high = (int(value) * 1_000 for value in (file.metrics[0].lower or 0, file.metrics[0].upper or 0))
            listed = ListedDataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.url,
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=file.row_count,
                file_size_in_bytes=file.content_length,
                value_counts={1: file.row_count},
                null_value_counts={1: 0},
                lower_bounds={1: low.to_bytes(8, "little", signed=True)},
                upper_bounds={1: high.to_bytes(8, "little", signed=True)},
            )
            listed.spec_id = 0
            append.append_data_file(listed)


def minute_commits(bench: Bench, minutes: int, console: Console) -> list[Row]:
    """IP2: a commit of 20 files in each minute of a day, and the plan of its last hour, against plain appends.

    As in the platform, each full hour is merged: its files become one, in a commit that is timed, too.
    """
    batches = [bench.files(_FIRST, minute, _PER_MINUTE) for minute in range(minutes)]
    table, loaded = bench.table()
    ours: list[float] = []
    unmerged: list[SmallObject] = []
    for minute, batch in enumerate(batches):
        change = added(_FIRST, batch)
        if minute and minute % 60 == 0:
            merged = bench.files(_FIRST, minute - 60, 1, minutes=60)
            change = replace(change, added=(*batch, *merged), removed=tuple(map(ListedFile.of, unmerged)))
            unmerged = []
        unmerged += batch

        def commit(minute: int = minute, change: DayChange = change) -> None:
            nonlocal loaded
            loaded = bench.commit(table, loaded, instant(_FIRST, minute), change, expire=True)

        ours.append(timed(commit))
    console.print(f"{minutes} commits of ours: {sum(ours):.1f} s")
    peer, theirs = append_all(bench, "appended", batches)
    console.print(f"{minutes} plain appends: {sum(theirs):.1f} s")
    part = max(1, minutes // 14)
    growth = statistics.median(ours[-part:]) / statistics.median(ours[:part])
    their_growth = statistics.median(theirs[-part:]) / statistics.median(theirs[:part])
    end = instant(_FIRST, minutes)
    start = end - timedelta(hours=1)
    our_plan = statistics.median(timed(lambda: planned(loaded.table, start, end, _FIRST)) for _ in range(5))
    other = statistics.median(timed(lambda: planned(peer, start, end, None)) for _ in range(3))
    return [
        Row(
            f"IP2 last {part} of {minutes} commits against the first {part}",
            f"{statistics.median(ours[-part:]) * 1000:.0f} ms",
            f"{statistics.median(theirs[-part:]) * 1000:.0f} ms",
            f"{growth:.2f} x (peer {their_growth:.2f} x)",
            "<= 1.5 x",
            growth <= 1.5,
        ),
        Row("IP2 snapshots", str(len(loaded.snapshots)), str(len(peer.metadata.snapshots)), "", "<= 300",
            len(loaded.snapshots) <= 300),
        _faster("IP2 planning the last hour", our_plan, other, 5),
    ]  # fmt: skip


def replace_in(bench: Bench, files: int, console: Console) -> float:
    """IP3: in a table of `files` files, a thousand files of one day become two. Returns the median seconds of five
    commits.
    """
    table, loaded = bench.table()
    days = [_FIRST + timedelta(days=number) for number in range(max(2, files // 1_000))]
    per_day = files // len(days)
    contents = {day: bench.files(day, 0, per_day) for day in days}
    loaded = bench.commit(table, loaded, instant(days[-1], 0), *(added(day, found) for day, found in contents.items()))
    seconds = []
    for number, day in enumerate(days[:5]):
        change = DayChange(
            date=day,
            publication=Publication(2, 2),
            added=bench.files(day, 0, 2, minutes=1_440),
            removed=tuple(ListedFile.of(file) for file in contents[day]),
        )

        def commit(change: DayChange = change, minute: int = number + 1) -> None:
            nonlocal loaded
            loaded = bench.commit(table, loaded, instant(days[-1], minute), change)

        seconds.append(timed(commit))
    console.print(f"{per_day} files into 2, among {files}: {', '.join(f'{value:.2f}' for value in seconds)} s")
    return statistics.median(seconds)


def plan_an_hour(bench: Bench, files: int, folder: Path, console: Console) -> tuple[list[Row], float]:
    """IP4: one hour of 30 days, against manifests over all days, and against listing. Also returns the seconds of a
    plan.
    """
    days = [_FIRST + timedelta(days=number) for number in range(30)]
    per_hour = max(1, files // (30 * 24))
    hours = {(day, hour): bench.files(day, hour * 60, per_hour, minutes=60) for day in days for hour in range(24)}
    table, loaded = bench.table()
    of_days = {day: [file for hour in range(24) for file in hours[day, hour]] for day in days}
    loaded = bench.commit(table, loaded, instant(days[-1], 0), *(added(day, found) for day, found in of_days.items()))
    mixed = [file for found in hours.values() for file in found]
    random.Random(2).shuffle(mixed)
    size = max(1, len(mixed) // 100)
    peer, _ = append_all(bench, "mixed", [mixed[start : start + size] for start in range(0, len(mixed), size)])
    day, start = days[17], instant(days[17], 13 * 60)
    end = start + timedelta(hours=1)
    plans = _plans(loaded.table, peer, start, end, day)
    count = planned(loaded.table, start, end, day)
    for file in mixed:
        path = folder / "lake" / file.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listing = timed(lambda: sum(1 for _ in bench.stores.list("lake", "t/live/")))
    console.print(f"one hour of {len(mixed)} files: {count} planned")
    rows = [
        _faster("IP4 planning one hour, against mixed manifests", *plans, 10),
        _faster("IP4 planning one hour, against listing the objects (local disk)", plans[0], listing, 10),
        Row("IP4 files planned, for each that is needed", f"{count / per_hour:.2f}", "", "", "<= 1.2",
            count <= 1.2 * per_hour),
    ]  # fmt: skip
    return rows, plans[0]


def _plans(ours: Table, peer: Table, start: datetime, end: datetime, day: date) -> tuple[float, float]:
    """Returns medians of five plans each, in turn. Raises ValueError if they find different numbers of files."""
    found = planned(ours, start, end, day), planned(peer, start, end, None)
    if found[0] != found[1]:
        raise ValueError(f"ours plans {found[0]} files, the peer {found[1]}")
    pairs = [
        (timed(lambda: planned(ours, start, end, day)), timed(lambda: planned(peer, start, end, None)))
        for _ in range(5)
    ]
    return statistics.median(own for own, _ in pairs), statistics.median(other for _, other in pairs)


def _faster(name: str, ours: float, peer: float, target: float) -> Row:
    ratio = peer / ours
    cells = (f"{ours * 1000:.0f} ms", f"{peer * 1000:.0f} ms", f"{ratio:.1f} x")
    return Row(name, *cells, f">= {target:g} x", ratio >= target)


def list_s3(settings: Settings, objects: int, seconds: float, console: Console) -> list[Row]:
    """IP4: the same listing from the local stack's S3 server, for a part of the objects, in pages of 1,000."""
    stores = Stores(settings.store)
    days = [_FIRST + timedelta(days=number) for number in range(30)]
    keys = [f"t/live/dt={days[number % 30]}/prism-{number:019d}.parquet" for number in range(objects)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: stores.put(settings.bucket, key, b""), keys))
    listing = timed(lambda: sum(1 for _ in stores.list(settings.bucket, "t/live/")))
    console.print(f"listing {objects} objects of the local S3 server: {listing:.2f} s")
    name = f"IP4 planning one hour, against listing {objects:,} objects of the local S3 server (s3proxy)"
    return [Row(name, f"{seconds * 1000:.0f} ms", f"{listing * 1000:.0f} ms", f"{listing / seconds:.1f} x", "", True)]


def large_tables(parts: Collection[str], scale: float, console: Console) -> list[Row]:
    """IP2 to IP4, in a store on the local disk."""
    services = ("postgres", "s3") if "IP4" in parts else ("postgres",)
    rows: list[Row] = []
    with bench_stack(services), tempfile.TemporaryDirectory(prefix="prism-bench-") as name:
        folder = Path(name)
        (folder / "lake").mkdir()
        settings = load_settings(bucket="lake", local_root=str(folder), s3_endpoint=None)
        Database(settings.database_url.get_secret_value()).migrate()
        bench = Bench(settings)
        if "IP2" in parts:
            rows += minute_commits(bench, max(60, round(1_440 * scale)), console)
        if "IP3" in parts:
            small, large = (replace_in(bench, round(files * scale), console) for files in (10_000, 100_000))
            ratio = large / small
            cells = (f"{large:.2f} s", f"{small:.2f} s", f"{ratio:.2f} x")
            rows.append(Row("IP3 1,000 files into 2, among 100,000 against 10,000", *cells, "<= 2 x", ratio <= 2))
        if "IP4" in parts:
            found, seconds = plan_an_hour(bench, round(100_000 * scale), folder, console)
            rows += [*found, *list_s3(load_settings(), max(1_000, round(5_000 * scale)), seconds, console)]
    return rows


def at_once(arguments: argparse.Namespace, console: Console) -> list[Row]:
    """IP5, in this process and on the local disk, with the platform's own PostgreSQL."""
    with bench_stack(("postgres",)), tempfile.TemporaryDirectory(prefix="prism-bench-") as name:
        folder = Path(name)
        for bucket in ("lake", "prism-staging"):
            (folder / bucket).mkdir()
        settings = load_settings(bucket="lake", local_root=name, s3_endpoint=None, spark_remote="in-process")
        context = build_context(settings)
        context.database.migrate()
        return many_tables(context, folder, arguments.tables, arguments.minutes, console)


def main() -> int:
    """Exit status 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench iceberg", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS, help="some of them")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the files and commits of IP2 to IP4")
    parser.add_argument("--files", type=int, default=2_000, help="small files of IP1")
    parser.add_argument("--rows", type=int, default=200, help="rows of each small file of IP1")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of IP1 that are counted")
    parser.add_argument("--tables", type=int, default=100, help="tables of IP5")
    parser.add_argument("--minutes", type=int, default=5, help="how long each table of IP5 gets objects")
    arguments = parser.parse_args()
    console = Console()
    rows: list[Row] = []
    if "IP1" in arguments.only:
        with bench_platform() as (context, folder):
            rows += small_files_into_one(context, folder, arguments.files, arguments.rows, arguments.rounds, console)
    if {"IP2", "IP3", "IP4"} & set(arguments.only):
        rows += large_tables(arguments.only, arguments.scale, console)
    if "IP5" in arguments.only:
        rows += at_once(arguments, console)
    _report(rows, arguments.scale, console)
    return 0 if all(row.met for row in rows) else 1


def _report(rows: Sequence[Row], scale: float, console: Console) -> None:
    lines = [
        f"# Iceberg: commits and plans{'' if scale == 1 else f', at {scale:g} of the size'}",
        "",
        "| work | ours | peer | ratio | target | met |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.ours} | {row.peer} | {row.ratio} | {row.target} | {'yes' if row.met else '**no**'} |"
            for row in rows
        ),
        *machine(),
    ]
    for line in lines:
        console.print(line, markup=False)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "iceberg.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
