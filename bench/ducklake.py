"""DuckLake: how soon committed rows are readable, and how long a client plans over the views, in lakes of several
sizes.

DP1 streams real objects, read in a session that stays open. DP2 to DP4 plan queries over a table of 100 days in ranges,
over a table with only unmerged objects, and over both beside too many small objects to read them all. The client's list
of objects is compared with the platform's own before any time counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import sqlalchemy
from rich.console import Console
from rich.table import Table
from sqlalchemy import text

from bench.report import RESULTS, machine
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.platform import build_context
from prism_assets.settings import Settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, zipped
from prism_local.readers.sessions import DuckDBSession, python_of_duckdb
from prism_local.stack import LocalStack

_MERGED, _UNMERGED, _OTHERS = "log.merged", "log.unmerged", "log.others"
_STAGING = "staging"
_ROWS = 200

# The merged table has ranges of all its 100 days over its small objects, the unmerged one has 10 days and none, and of
# the 1,000 days of the others every tenth is unmerged. Ids follow from each other.
_STATE = (
    "SET LOCAL session_replication_role = replica",
    """
    CREATE TEMPORARY TABLE days ON COMMIT DROP AS
    SELECT row_number() OVER () + 1000 AS p, x.*,
        CAST(sum(n) OVER (ROWS UNBOUNDED PRECEDING) AS bigint) + 1000000 AS last,
        timestamptz '2023-01-01 00:00Z' + d * interval '1 day' AS first_time,
        timestamptz '2023-01-01 23:00Z' + d * interval '1 day' AS last_time
    FROM (
        SELECT prism_table_id AS t, d, table_name = 'merged' OR (table_name = 'others' AND d % 10 > 0) AS is_merged,
            CASE table_name WHEN 'merged' THEN :objects / 100 WHEN 'unmerged' THEN :objects / 10
            ELSE :others / 1000 END AS n
        FROM prism_tables, generate_series(1, 1000) d
        WHERE d <= CASE table_name WHEN 'merged' THEN 100 WHEN 'unmerged' THEN 10 WHEN 'others' THEN 1000 ELSE 0 END
        ORDER BY 1, 2
    ) x
    """,
    """
    INSERT INTO prism_partitions (prism_partition_id, prism_table_id, partition_date, desired_manifest_version,
        last_object_id) OVERRIDING SYSTEM VALUE
    SELECT p, t, date '2023-01-01' + d, CASE WHEN is_merged THEN last ELSE 0 END, last FROM days
    """,
    """
    INSERT INTO prism_small_objects (prism_small_object_id, prism_staging_object_id, prism_partition_id, delayed,
        content_length, upload_start_time, row_count, min_time, max_time, fingerprint, file_format, definition_version)
        OVERRIDING SYSTEM VALUE
    SELECT last - n + i, last - n + i, p, false, 20000, now(), 200, first_time, last_time, 1, 2, 1
    FROM days, generate_series(1, n) i
    """,
    """
    INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count,
        fingerprint, create_time, update_time)
    SELECT p, NULL, 0, 0, 0, 0, now(), now() FROM days WHERE is_merged
    """,
    """
    INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count,
        fingerprint, create_time, update_time, min_time, max_time, file_format, definition_version)
    SELECT p, 0, last, 20000 * n, 200 * n, n, now(), now(), first_time, last_time, 2, 1 FROM days WHERE is_merged
    """,
)

_DAY = "dt = DATE '2023-01-05'"
_HOUR = f"{_DAY} AND time > TIMESTAMPTZ '2023-01-05 22:00:00+00'"


@dataclass(frozen=True)
class Figure:
    """Milliseconds of all rounds of one query, and the limit."""

    number: str
    work: str
    milliseconds: tuple[float, ...]
    target: float

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.milliseconds)

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its target."""
        return self.median <= self.target


class Lake:
    """A platform with its lake in a folder, and a DuckLake client connected in the readers' role."""

    def __init__(self, context: StageContext, root: Path, session: DuckDBSession, reader_url: str) -> None:
        self.context, self.root, self.session = context, root, session
        url = sqlalchemy.make_url(reader_url)
        words = {
            "dbname": url.database,
            "host": url.host,
            "port": url.port,
            "user": url.username,
            "password": url.password,
        }
        source = " ".join(f"{name}={value}" for name, value in words.items())
        session.query(f"ATTACH 'ducklake:postgres:{source}' AS lake (READ_ONLY, METADATA_SCHEMA 'prism_lake')")

    def table(self, name: str) -> TableDefinition:
        """Returns the current definition."""
        return self.context.choose_tables([name])[0]

    def listed(self, name: str) -> set[str]:
        """Returns the objects a client would read."""
        schema, _, table = name.partition(".")
        rows = self.session.query(f"SELECT data_file FROM ducklake_list_files('lake', '{table}', schema => '{schema}')")
        return {row[0] for row in rows}

    def wanted(self, name: str) -> set[str]:
        """Returns the objects the platform would publish."""
        table = self.table(name)
        keys = self.context.lake.keys(table)
        found: set[str] = set()
        with self.context.database.begin() as connection:
            chains = merge_ranges.load_table_chains(connection, keys, table.table_id)
            for item in partitions.load_table_partitions(connection, table.table_id):
                chain = chains.get(item.date, [])
                above = small_objects.load_above(connection, keys, item.partition_id, item.desired_version)
                found.update(file.key for file in (*chain, *above))
        return {str(self.root / "buckets" / self.context.lake.bucket / key) for key in found}

    def compare(self, names: Sequence[str]) -> int:
        """Returns the number of objects. Raises ValueError if a client would read others."""
        count = 0
        for name in names:
            listed, wanted = self.listed(name), self.wanted(name)
            if listed != wanted:
                raise ValueError(f"{name}: {len(listed - wanted)} objects too many, {len(wanted - listed)} missing")
            count += len(wanted)
        return count

    def plans(self, name: str, where: str, rounds: int) -> tuple[float, ...]:
        """Returns the milliseconds of planning a query, without the first time."""
        sql = f"EXPLAIN SELECT id FROM lake.{name} WHERE {where}"
        times = []
        for _ in range(rounds + 1):
            self.session.query(sql)
            times.append(self.session.seconds * 1000)
        return tuple(times[1:])


@contextmanager
def a_lake() -> Iterator[Lake]:
    """Yields a platform on this machine with its own PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        root = Path(folder)
        stack = LocalStack(root / ".prism")
        stack.up(services={"postgres"})
        try:
            values = stack.environment()
            for bucket in ("lake", _STAGING):
                (root / "buckets" / bucket).mkdir(parents=True)
            settings = Settings(
                database_url=values["PRISM_DATABASE_URL"],
                bucket="lake",
                local_root=str(root / "buckets"),
                spark_remote="in-process",
                tables_dir=root / "tables",
            )
            context = build_context(settings)
            settings.tables_dir.mkdir()
            for name in ("log.events", _MERGED, _UNMERGED, _OTHERS):
                (settings.tables_dir / f"{name}.yaml").write_text(a_table(name))
            run_apply(context, settings.tables_dir, datetime.now(timezone.utc))
            with DuckDBSession(python_of_duckdb()) as session:
                yield Lake(context, root, session, values["PRISM_DUCKLAKE_URL"])
            context.database.dispose()
        finally:
            stack.reset()


def time_freshness(lake: Lake, rounds: int) -> tuple[float, ...]:
    """Returns milliseconds from the end of a stream until an open session reads all rows."""
    now = datetime.now(timezone.utc)
    count, times = 0, []
    for number in range(rounds + 1):
        path = lake.root / "buckets" / _STAGING / "events" / f"{number:06}.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zipped(as_lines(some_rows(_ROWS, now))))
        run_discover(lake.context, now=now)
        run_stream(lake.context, now=now)
        count += _ROWS
        started = time.perf_counter()
        ((seen, different),) = lake.session.query("SELECT count(id), count(DISTINCT id) FROM lake.log.events")
        times.append((time.perf_counter() - started) * 1000)
        if (seen, different) != (count, count):
            raise ValueError(f"{seen} rows with {different} ids were read of {count}")
    return tuple(times[1:])


def fill(lake: Lake, objects: int, others: int) -> None:
    """Adds `objects` small objects to the merged and to the unmerged table, and `others` beside them."""
    with lake.context.database.begin() as connection:
        for statement in _STATE:
            connection.execute(
                text(statement), {"objects": objects, "others": others} if ":objects" in statement else {}
            )
    with lake.context.database.outside_transactions() as connection:
        connection.execute(text("VACUUM ANALYZE"))


def reads_all(lake: Lake) -> list[str]:
    """Returns the views whose plan for one table scans a whole table of objects."""
    found = []
    number = lake.table(_MERGED).table_id
    with lake.context.database.begin() as connection:
        for view in ("ducklake_data_file", "ducklake_file_column_stats"):
            rows = connection.execute(
                text(f"EXPLAIN SELECT * FROM prism_lake.{view} WHERE table_id = {number}")
            ).scalars()
            plan = "\n".join(rows)
            if "Seq Scan on prism_small_objects" in plan or "Seq Scan on prism_merge_ranges" in plan:
                found.append(view)
    return found


def measure(objects: int, others: int, rounds: int, out: Console) -> list[Figure]:
    """Measures everything one after another. Compares each lake first."""
    figures = []
    with a_lake() as lake:
        figures.append(Figure("DP1", "commit → rows in an open session", time_freshness(lake, rounds), 200))
        for number, beside, targets in (("", 0, ("DP2", "DP3")), ("DP4", others, ("DP4", "DP4"))):
            if number and not others:
                continue
            _empty(lake)
            started = time.perf_counter()
            fill(lake, objects, beside)
            compared = lake.compare([_MERGED, _UNMERGED])
            out.print(
                f"{2 * objects + beside:,} small objects made in {time.perf_counter() - started:.0f} s; "
                f"a client is told the same {compared:,} objects as the platform publishes"
            )
            if whole := reads_all(lake):
                raise ValueError(f"{' and '.join(whole)} read all objects there are")
            size = f", beside {beside:,}" if beside else ""
            for where, what in (("true", "the whole table"), (_DAY, "one day"), (_HOUR, "an hour of a day")):
                merged = lake.plans(_MERGED, where, rounds)
                figures.append(Figure(targets[0], f"plan, 100 ranges over {objects:,}{size}: {what}", merged, 50))
            unmerged = lake.plans(_UNMERGED, _DAY, rounds)
            figures.append(Figure(targets[1], f"plan, {objects:,} unmerged{size}: one day", unmerged, 1000))
    return figures


def _empty(lake: Lake) -> None:
    with lake.context.database.begin() as connection:
        connection.execute(text("DELETE FROM prism_merge_ranges WHERE prism_partition_id > 1000 AND lower_bound >= 0"))
        for table in ("prism_merge_ranges", "prism_small_objects", "prism_partitions"):
            connection.execute(text(f"DELETE FROM {table} WHERE prism_partition_id > 1000"))


def report(figures: Sequence[Figure], title: str) -> bool:
    """Prints and writes the table. Returns whether all targets are met."""
    heads = ("", "work", "median ms", "min", "max", "target")
    grid = Table(*heads, title=title)
    lines = [f"# {title}", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for item in figures:
        low, high = min(item.milliseconds), max(item.milliseconds)
        target = f"≤ {item.target:.0f}" + ("" if item.is_met else " missed")
        cells = (item.number, item.work, f"{item.median:.1f}", f"{low:.1f}", f"{high:.1f}", target)
        grid.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    Console(width=140).print(grid)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ducklake.md").write_text("\n".join([*lines, *machine(), ""]))
    (RESULTS / "ducklake.json").write_text(json.dumps({item.work: item.milliseconds for item in figures}, indent=2))
    return all(item.is_met for item in figures)


def main() -> int:
    """Exit status 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench ducklake", description=__doc__)
    parser.add_argument(
        "--objects", type=int, default=100_000, help="small objects of the merged and of the unmerged table"
    )
    parser.add_argument(
        "--others", type=int, default=10_000_000, help="small objects of other tables in DP4; 0 leaves it out"
    )
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    out = Console(width=140)
    figures = measure(given.objects, given.others, given.rounds, out)
    return 0 if report(figures, "DuckLake") else 1


if __name__ == "__main__":
    sys.exit(main())
