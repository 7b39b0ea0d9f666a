"""Costs of a table's expressions: four of them, against none, and against reading the same columns from the lines.

First the kernel alone: each variant converts the rows of `scripts/bench stream` in one thread of this process, from and
to a folder. Common columns must be equal, value by value. Computed columns must equal those that Python's own functions
put into the lines of the third variant. Then the same rows go through the whole Stream, with and without the
expressions; the target limits how much longer this takes.

Also measured: `prism table try` on 10,000 of these lines, and `prism table init` on 100 MB of them, including the start
of the command. An erasure's rewrite of a merged object races a merge of the same rows. A search over many small objects
counts how much it reads and writes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.conversion import convert_one, local_lake, stored
from bench.erasures import Erasures
from bench.harness import System, race, report
from bench.platform import apply_rounds, bench_platform, log_lines, write_objects
from bench.stream import Prism
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file

_START = datetime(2026, 3, 1, tzinfo=timezone.utc)
_MOST_TIMES = 1.3
_WARMUPS = 3
_TRIED_LINES, _TRY_SECONDS = 10_000, 3
_DRAFTED_BYTES, _INIT_SECONDS = 100_000_000, 10
_ACCEPT = "accept: {past_days: 3650, future_days: 365}\n"
_COMMON = """
schema: bench
table: pages
streams: [{name: pages, url: "s3://staging/pages/"}]
columns:
  - {name: time, type: timestamp, source: event_time, required: true}
  - {name: request_id, type: string, length: 36}
  - {name: user_id, type: bigint}
  - {name: session, type: string, length: 64}
  - {name: path, type: string, length: 2000}
  - {name: status, type: integer}
  - {name: elapsed, type: double}
  - {name: premium, type: boolean}
  - {name: ua, type: string, length: 500}
  - {name: referer, type: string, length: 500}
"""
_READ = """
  - {name: session_hash, type: string, length: 64}
  - {name: section, type: string, length: 100}
  - {name: is_error, type: boolean}
  - {name: slow, type: string, length: 10}
"""
_EXPRESSIONS = """
  - {name: session_hash, type: string, length: 64, value: "sha256(lower(trim(session)))"}
  - {name: section, type: string, length: 100, value: "split_part(path, '/', 2)"}
  - {name: is_error, type: boolean, value: "status >= 400"}
  - {name: slow, type: string, length: 10, value: "CASE WHEN elapsed > 0.5 THEN 'slow' ELSE 'fast' END"}
"""
_COMPUTED = ("session_hash", "section", "is_error", "slow")


def _table(text: str) -> TableDefinition:
    return replace(stored(parse_table_file(text, "bench.yaml")), accept_from="object")


def _lines(rows: int, number: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of `scripts/bench stream`, all of one day."""
    for line in log_lines(rows, number, hour=1).splitlines():
        yield json.loads(line)


def _with_computed(line: dict[str, Any]) -> dict[str, Any]:
    """Adds the results of the expressions to a line, computed by Python's own functions."""
    return line | {
        "session_hash": hashlib.sha256(line["session"].strip().lower().encode()).hexdigest(),
        "section": line["path"].split("/")[1],
        "is_error": line["status"] >= 400,
        "slow": "slow" if line["elapsed"] > 0.5 else "fast",
    }


def _body(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def _users(rows: int, number: int) -> bytes:
    """Returns lines of users that occur in no other object."""
    lines = enumerate(_lines(rows, number))
    return _body({**line, "user_id": number * 1_000_000 + place} for place, line in lines)


class Conversions:
    """One table: every round converts all objects into its own lake."""

    def __init__(self, root: Path, table: TableDefinition, objects: list[Path]) -> None:
        self._local = local_lake(root)
        self._root, self._table, self._objects = root, table, objects
        self.computed = ""

    def prepare(self, _number: int) -> None:
        stores, _ = self._local
        stores.delete("lake", [item.key for item in stores.list("lake", "")])

    def work(self, _number: int) -> None:
        for number, path in enumerate(self._objects, 1):
            received = _START + timedelta(days=1)
            result = convert_one(self._local, self._table, number, path.name, path.stat().st_size, received)
            assert not result.quarantined

    def outcome(self, _number: int) -> Mapping[str, object]:
        paths = sorted((self._root / "lake").rglob("*.parquet"))
        rows = pa.concat_tables(pq.ParquetFile(path).read() for path in paths)
        common = [name for name in rows.column_names if name not in _COMPUTED]
        if len(common) < rows.num_columns:
            self.computed = _digest(rows, _COMPUTED)
        return {"rows": rows.num_rows, "columns of all": _digest(rows, common)}


def _digest(rows: pa.Table, names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(repr(rows.column(name).to_pylist()).encode())
    return digest.hexdigest()[:16]


def _seconds_of_try(root: Path, sample: Path, rounds: int) -> float:
    """Returns the median of `rounds` commands over a file of 10,000 lines, with the expressions."""
    file = root / "pages.yaml"
    file.write_text(_COMMON + _EXPRESSIONS.lstrip("\n") + _ACCEPT)
    seconds, output = _seconds_of(("try", str(file), "--sample", str(sample)), rounds)
    assert output["rows"] == _TRIED_LINES
    return seconds


def _seconds_of_init(folder: Path, rounds: int) -> float:
    """Returns the median of `rounds` drafts from a folder with 100 MB of JSON lines."""
    folder.mkdir()
    size = number = 0
    while size < _DRAFTED_BYTES:
        body = log_lines(20_000, number)
        (folder / f"{number}.json").write_bytes(body)
        size, number = size + len(body), number + 1
    arguments = ("init", "bench.drafted", "--sample", str(folder), "--url", "s3://staging/drafted/", "--print")
    seconds, output = _seconds_of(arguments, rounds)
    assert output["objects"] == number
    return seconds


def _seconds_of(arguments: Sequence[str], rounds: int) -> tuple[float, Any]:
    """Returns the median of `rounds` commands `prism table`, including their start, and the last output."""
    command = [sys.executable, "-m", "prism_assets.cli", "table", *arguments, "--json"]
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), json.loads(done.stdout)


def main() -> int:
    """Races all. Returns exit status 1 if Stream takes more than 1.3 times as long with four expressions, `try` more
    than 3 s, `init` more than 10 s, or the rewrite of an object longer than a merge's limit.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000, help="rows an object")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "staging").mkdir()
        (root / "lake").mkdir()
        plain = [root / "staging" / f"{number}.gz" for number in range(options.objects)]
        full = [root / "staging" / f"{number}-with-computed.gz" for number in range(options.objects)]
        for number in range(options.objects):
            plain[number].write_bytes(gzip.compress(_body(_lines(options.rows, number)), 6))
            lines = map(_with_computed, _lines(options.rows, number))
            full[number].write_bytes(gzip.compress(_body(lines), 6))
        pa.set_cpu_count(1)
        ways = {
            "four expressions": Conversions(root, _table(_COMMON + _EXPRESSIONS.lstrip("\n")), plain),
            "no expression": Conversions(root, _table(_COMMON), plain),
            "the same columns read": Conversions(root, _table(_COMMON + _READ.lstrip("\n")), full),
        }
        systems = [System(name, way.prepare, way.work, way.outcome) for name, way in ways.items()]
        timings = race(systems, options.rounds)
        computed, read = ways["four expressions"].computed, ways["the same columns read"].computed
        if computed != read:
            raise ValueError(f"computed columns are {computed}, those in the lines {read}")
        sample = root / "sample.gz"
        sample.write_bytes(gzip.compress(_body(_lines(_TRIED_LINES, 0)), 6))
        trying = _seconds_of_try(root, sample, options.rounds)
        drafting = _seconds_of_init(root / "drafted", options.rounds)
        (root / "erasures" / "staging").mkdir(parents=True)
        (root / "erasures" / "lake").mkdir()
        bodies = [_users(options.rows // 10, number) for number in range(10 * options.objects)]
        erasures = Erasures(root / "erasures", _table(_COMMON), bodies, _START + timedelta(days=1))
        erased = erasures.race(options.rounds)
    note = (
        f"{options.objects * options.rows:,} lines in {options.objects} gzip objects; a ratio of 0.77 is 1.3 times the "
        "time. Without the expressions four columns less are written; read, they are the same."
    )
    commands = (
        f"`prism table try` on {_TRIED_LINES:,} lines, four expressions: {trying:.2f} s (target: {_TRY_SECONDS} s). "
        f"`prism table init` on {_DRAFTED_BYTES // 1_000_000} MB: {drafting:.2f} s (target: {_INIT_SECONDS} s)."
    )
    print(commands)
    report("Tables kernel: four expressions", timings, {}, [note, "", commands])
    met = _race_stream(options.rounds)
    return 0 if met and erased and trying <= _TRY_SECONDS and drafting <= _INIT_SECONDS else 1


def _race_stream(rounds: int) -> bool:
    """Races the whole Stream. Returns whether four expressions cost no more than allowed."""
    columns = {"plain": "", "computed": _EXPRESSIONS.lstrip("\n")}
    with bench_platform() as (context, folder):
        objects = folder / "objects"
        size = write_objects(objects, 100, 10_000)
        apply_rounds(context, folder, _WARMUPS + rounds, columns)
        ways = {
            "four expressions": Prism(context, objects, folder, "computed"),
            "no expression": Prism(context, objects, folder, "plain"),
        }
        systems = [System(name, way.prepare, way.work, way.outcome) for name, way in ways.items()]
        timings = race(systems, rounds, _WARMUPS)
    note = f"1,000,000 lines, {size / 1e6:.0f} MB of JSON in 100 gzip objects. A ratio of 0.77 is 1.3 times the time."
    return report("Tables: Stream with four expressions", timings, {"no expression": round(1 / _MOST_TIMES, 2)}, [note])


if __name__ == "__main__":
    sys.exit(main())
