"""One prefix for many tables: core-seconds of a table that takes 1 of 100 lines, against a table that takes all.

Each table has a warm process of its own. The rows of the one must be those of the other with its value of the route.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.conversion import convert_one, local_lake, stored
from bench.kernel import kernel_in_use
from bench.platform import AGENTS
from bench.report import Grid, Report, Verdict, median_ratio
from bench.sets import RECEIVED, START
from bench.warm import WarmProcess
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.engine.worker import prepare_worker

_MOST = 0.35
_KINDS = 100
_TAKEN = "k7"
_ROUTES = {"all lines": "", f"1 of {_KINDS} lines": f", route: {{by: $.kind, in: [{_TAKEN}]}}"}
_TABLE = """\
schema: bench
table: routes
streams: [{{name: bench, url: "s3://staging/in/"{route}}}]
accept: {{from: arrival}}
columns:
  - {{name: time, type: timestamp, source: ts}}
  - {{name: kind, type: string}}
  - {{name: id, type: bigint}}
  - {{name: user_id, type: bigint, source: $.user.id}}
  - {{name: agent, type: string, source: $.user.agent}}
  - {{name: path, type: string}}
  - {{name: status, type: integer}}
  - {{name: bytes, type: bigint}}
  - {{name: message, type: string}}
"""


def _line(draw: random.Random, number: int) -> str:
    return json.dumps(
        {
            "ts": (START + timedelta(milliseconds=40 * number)).isoformat(timespec="milliseconds"),
            "kind": f"k{draw.randrange(_KINDS)}",
            "id": number,
            "user": {"id": draw.randrange(1_000_000), "agent": draw.choice(AGENTS)},
            "path": f"/recipes/{draw.randrange(5_000)}/steps/{draw.getrandbits(64):x}",
            "status": draw.choice((200, 200, 301, 404, 500)),
            "bytes": draw.randrange(1_000_000),
            "message": "the recipe was read " * draw.randrange(5),
        }
    )


def _write(folder: Path, objects: int, lines: int) -> None:
    (folder / "staging" / "in").mkdir(parents=True)
    for number in range(objects):
        draw = random.Random(number)
        body = "".join(f"{_line(draw, number * lines + place)}\n" for place in range(lines))
        (folder / "staging" / "in" / f"{number:05}.gz").write_bytes(gzip.compress(body.encode(), 6, mtime=0))


def _convert(folder: Path, place: int, route: str) -> None:
    pa.set_cpu_count(1)
    table = stored(parse_table_file(_TABLE.format(route=route), "bench.yaml"))
    root = folder / str(place)
    shutil.rmtree(root, ignore_errors=True)
    (root / "lake").mkdir(parents=True)
    (root / "staging").symlink_to(folder / "staging")
    for number, path in enumerate(sorted((folder / "staging" / "in").iterdir()), 1):
        result = convert_one(local_lake(root), table, number, f"in/{path.name}", path.stat().st_size, RECEIVED)
        assert not result.quarantined


def _facts(folder: Path, place: int) -> tuple[object, ...]:
    """Returns facts about the rows with the value of the route."""
    with duckdb.connect() as connection:
        (row,) = connection.execute(
            "SELECT count(*), sum(id)::BIGINT, sum(user_id)::BIGINT, sum(bytes)::BIGINT, sum(hash(path))::VARCHAR, "
            "sum(hash(agent))::VARCHAR, sum(hash(message))::VARCHAR, sum(epoch_ms(time))::VARCHAR "
            f"FROM read_parquet('{folder / str(place) / 'lake' / '**' / '*.parquet'}', hive_partitioning = false) "
            f"WHERE kind = '{_TAKEN}'"
        ).fetchall()
    return tuple(row)


def _race(folder: Path, rounds: int) -> Mapping[str, list[float]]:
    """Converts for both tables in turn. Returns core-seconds of each round. Raises ValueError for unequal rows."""
    used: dict[str, list[float]] = {name: [] for name in _ROUTES}
    with ExitStack() as stack:
        processes = {name: stack.enter_context(WarmProcess(prepare_worker)) for name in used}
        for number in range(rounds + 1):
            for place, (name, process) in enumerate(processes.items()):
                spent = process.run(partial(_convert, folder, place, _ROUTES[name])).core_seconds
                used[name] += [spent] if number else []  # the first one warms up
    facts = [_facts(folder, place) for place in range(len(_ROUTES))]
    if facts[0] != facts[1] or not facts[0][0]:
        raise ValueError(f"the rows differ: {facts}")
    return used


def main() -> int:
    """Races both tables. Returns exit status 1 if the one takes more than 0.35 times the core-seconds of the other."""
    parser = argparse.ArgumentParser(prog="scripts/bench routes", description=__doc__)
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--lines", type=int, default=40_000, help="lines of an object")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        _write(Path(folder), options.objects, options.lines)
        used = _race(Path(folder), options.rounds)
    count = options.objects * options.lines
    everything, part = used.values()
    ratio = median_ratio(part, everything)
    rows = tuple((name, f"{statistics.median(found) / count * 1e6:.2f}") for name, found in used.items())
    report = Report(
        entry="routes",
        title="One prefix for many tables: a table of few lines against a table of all",
        verdicts=(Verdict("NP4", f"core-s, 1 of {_KINDS} lines : all lines", ratio, _MOST, at_most=True),),
        grids=(Grid("Conversion", ("the table takes", "µs a line of the prefix"), rows),),
        notes=(f"{count:,} lines in {options.objects} gzip objects. {kernel_in_use()}",),
        figures={f"1 of {_KINDS} lines : all lines": round(ratio, 3)},
    )
    return 0 if report.publish() else 1


if __name__ == "__main__":
    sys.exit(main())
