"""Five queries of DuckDB on a day as live objects, as our merged object, and as a file that DuckDB wrote.

All on the local disk, so that the price of requests is left out: on S3, live objects cost a request or more each. One
thread never waits there, so core-seconds are the seconds of an idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from bench.bars import Bar
from bench.merge_kernel import Case, make_case, merge_with_duckdb, merge_with_prism
from bench.report import Grid, Report, Verdict, median_ratio

_FASTER, _SLOWER = 3.0, 1.1
_QUERIES = {
    "rows of the day": "SELECT count(*), min(time), max(time) FROM {files}",
    "one hour": "SELECT count(*), sum(user_id) FROM {files} WHERE time >= {start} AND time < {start} + INTERVAL 1 HOUR",
    "errors by status": (
        "SELECT status, count(*), round(avg(elapsed), 6) FROM {files} WHERE status >= 400 GROUP BY 1 ORDER BY 1"
    ),
    "most read paths": "SELECT path, count(*) FROM {files} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    "one user": "SELECT time, path, status FROM {files} WHERE user_id = 4242 ORDER BY time, path",
}


def sources(case: Case) -> Mapping[str, list[str]]:
    """Merges the day both ways. Returns the files of each form."""
    merge_with_prism(case, 0)
    merge_with_duckdb(case, 0, 1)
    live = [str(case.root / "lake" / file.key) for file in case.files]
    return {
        "merged object": [str(case.target("prism", 0))],
        "live objects": live,
        "file of DuckDB": [str(case.target("duckdb", 0))],
    }


def ask(
    connection: duckdb.DuckDBPyConnection, query: str, files: Sequence[str], start: str
) -> list[tuple[object, ...]]:
    source = f"read_parquet({list(files)!r}, hive_partitioning = false)"
    return connection.execute(query.format(files=source, start=start)).fetchall()


def race(forms: Mapping[str, list[str]], query: str, start: str, rounds: int) -> dict[str, list[float]]:
    """Returns core-seconds of each round by form. Raises ValueError if answers differ."""
    found: dict[str, list[float]] = {name: [] for name in forms}
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        answers = {name: ask(connection, query, files, start) for name, files in forms.items()}
        first = next(iter(answers.values()))
        for name, answer in answers.items():
            if answer != first:
                raise ValueError(f"{name} answered {answer[:3]}, the merged object {first[:3]}")
        for _ in range(rounds):
            for name, files in forms.items():
                begun = time.process_time()
                ask(connection, query, files, start)
                found[name].append(time.process_time() - begun)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench queries", description=__doc__)
    parser.add_argument("--objects", type=int, default=2_000)
    parser.add_argument("--lines", type=int, default=1_330, help="rows of each object; 1,330 are 64 KB")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows, live, duck = list[tuple[str, ...]](), list[float](), list[float]()
    bars = list[Bar]()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        case = make_case(Path(folder), options.objects, options.lines)
        forms = sources(case)
        for title, query in _QUERIES.items():
            found = race(forms, query, "TIMESTAMP '2026-03-01 03:00:00'", options.rounds)
            ours = found["merged object"]
            live.append(median_ratio(found["live objects"], ours))
            duck.append(median_ratio(ours, found["file of DuckDB"]))
            medians = {name: statistics.median(times) * 1000 for name, times in found.items()}
            rows.append((title, *(f"{value:.1f}" for value in medians.values()), f"{live[-1]:.1f}", f"{duck[-1]:.2f}"))
            bars += [Bar(f"{title}, {name}", value, name == "merged object") for name, value in medians.items()]
    heads = (
        "query",
        "ms, merged object",
        "ms, live objects",
        "ms, file of DuckDB",
        "live : merged",
        "merged : DuckDB's",
    )
    return (
        0
        if Report(
            entry="queries",
            title="Queries: one day, merged and not",
            verdicts=(
                Verdict("P7", "core-s, live : merged, least of five", min(live), _FASTER),
                Verdict("P7", "core-s, merged : file of DuckDB, most of five", max(duck), _SLOWER, at_most=True),
            ),
            grids=(Grid("Core-milliseconds of DuckDB, one thread, local disk", heads, tuple(rows)),),
            notes=(f"{options.objects:,} live objects of {options.lines:,} rows; {options.rounds} rounds in turn.",),
            bars=tuple(bars),
            bars_label="core-milliseconds, median; shorter is better",
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
