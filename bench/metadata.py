"""The statements of every tick and of readers, in PostgreSQL with 30 thousand and with many more small objects.

Both databases have the same tables and days, and the same open work: 100 objects of yesterday and of today for each
table. So a growth follows the past. The default of a million objects takes two minutes to fill; `--objects
1000` makes 10 million.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone
from pathlib import Path

from sqlalchemy import Connection

from bench.lake_state import LakeSize, analyze, fill_lake, write_table_files
from bench.platform import bench_stack
from bench.report import Grid, Report, Verdict
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.metadata.database import Database
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_queue, small_objects
from prism_assets.metadata.intake import claims, delayed
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply

_MOST_MS = 10.0
_MOST_GROWTH = 1.5
_ROUNDS = 21
_TABLES = list(range(1, 21))
Question = Callable[[Connection], object]


def questions(today: date) -> Mapping[str, Question]:
    """Returns the statements of ticks, and of a reader of one table."""
    now = datetime.now(timezone.utc)
    days = {table: DateRange(today.replace(day=1), today) for table in _TABLES}
    return {
        "pending objects": lambda connection: claims.has_pending(connection, _TABLES),
        "delayed days": lambda connection: delayed.delayed_days(connection, _TABLES),
        "closing marks": lambda connection: partitions.closing_marks(connection, days),
        "catalog work": lambda connection: partitions.load_pending(connection, _TABLES),
        "due merges": lambda connection: merge_queue.due_merges(connection, now, 60),
        "unmerged days": lambda connection: small_objects.unmerged(connection, _TABLES, today),
        "partitions to merge": lambda connection: partitions.ids_unmerged(connection, _TABLES),
    }


def milliseconds(folder: Path, size: LakeSize) -> Mapping[str, float]:
    """Fills a new database and returns the median of each question there."""
    with bench_stack({"postgres", "s3", "aws"}):
        write_table_files(folder, size)
        os.environ["PRISM_TABLES_DIR"] = str(folder)
        context = build_context(load_settings())
        try:
            run_apply(context, folder, datetime.now(timezone.utc))
            today = datetime.now(timezone.utc).date()
            begun = time.monotonic()
            count = fill_lake(context, size, today) * size.objects
            analyze(context)
            print(f"{count:,} small objects made in {time.monotonic() - begun:.0f} s", flush=True)
            return {name: _median(context.database, ask) for name, ask in questions(today).items()}
        finally:
            context.database.dispose()


def _median(database: Database, ask: Question) -> float:
    times = []
    for _ in range(_ROUNDS):
        with database.begin() as connection:
            started = time.perf_counter()
            ask(connection)
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench metadata", description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--objects", type=int, default=100, help="small objects of each day in the large database")
    parser.add_argument("--open-objects", type=int, default=100, help="of each of the last two days, in both databases")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        for objects in (1, options.objects):
            size = LakeSize(
                options.tables, 10, options.days, objects, runs=0, shown_days=0, open_objects=options.open_objects
            )
            found.append(milliseconds(Path(folder) / f"tables{objects}", size))
    small, large = found
    rows = tuple(
        (name, f"{small[name]:.2f}", f"{large[name]:.2f}", f"{large[name] / small[name]:.2f}") for name in small
    )
    open_objects = 2 * options.open_objects
    few, many = (options.tables * ((options.days - 2) * objects + open_objects) for objects in (1, options.objects))
    heads = ("statement", f"ms, {few:,} objects", f"ms, {many:,} objects", "growth")
    slowest = max(large.values())
    growth = max(large[name] / small[name] for name in small)
    return (
        0
        if Report(
            entry="metadata",
            title="Metadata: statements beside many small objects",
            verdicts=(
                Verdict("P11", f"slowest statement, {many:,} objects", slowest, _MOST_MS, "ms", at_most=True),
                Verdict("P11", f"growth from {few:,} objects", growth, _MOST_GROWTH, "x", at_most=True),
            ),
            grids=(Grid("Medians of 21", heads, rows),),
            notes=(f"{options.tables} tables of {options.days} days in both databases, all days but the last merged.",),
            figures={f"{name}: ms": round(value, 2) for name, value in large.items()},
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
