"""Nested columns against the same leaves as columns: conversions of lines, and merges of small objects.

NP1: core-seconds of lines with three structs and a list, against the same lines with a path a leaf. NP5: megabytes of
merged input a core-second, against objects of the paths. One thread, the local disk, warm processes in turn.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.bars import Bar
from bench.conversion import convert_one, local_lake
from bench.kernel import kernel_in_use
from bench.platform import AGENTS, TABLE_HEAD
from bench.report import Grid, Report, Verdict, median_ratio
from bench.sets import RECEIVED, START
from bench.warm import Usage, WarmProcess
from prism_assets.domain.columns.parts import with_ids
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.worker import prepare_worker
from prism_assets.kernels.write import write_object

_MOST_CORE_SECONDS = 1.3
_LEAST_MEGABYTES = 0.8
_FIELDS = {
    "request": {"method": "string", "path": "string", "status": "integer", "bytes": "bigint"},
    "user": {"id": "bigint", "plan": "string", "country": "string"},
    "device": {"os": "string", "version": "integer", "agent": "string"},
}
_TAGS = 3
_HEAD = TABLE_HEAD + "columns:\n  - {{name: time, type: timestamp, source: ts, required: true}}\n"


def _table_text(kind: str) -> str:
    """Returns a table file with the leaves as parts of nested columns, or as columns that read paths."""
    lines = []
    for column, fields in _FIELDS.items():
        if kind == "structs":
            inside = ", ".join(f"{name}: {of}" for name, of in fields.items())
            lines.append(f'{{{{name: {column}, type: "struct<{inside}>"}}}}')
            continue
        for name, of in fields.items():
            lines.append(f'{{{{name: {column}_{name}, type: "{of}", source: "$.{column}.{name}"}}}}')
    if kind == "structs":
        lines.append('{{name: tags, type: "list<string>"}}')
    else:
        lines += [f'{{{{name: tag_{n}, type: "string", source: "$.tags[{n}]"}}}}' for n in range(_TAGS)]
    return _HEAD + "".join(f"  - {line}\n" for line in lines)


@cache
def _table(kind: str) -> TableDefinition:
    """Returns the definition as a stored one, with ids of columns and their parts."""
    parsed = parse_table_file(_table_text(kind).format(table="bench"), "bench.yaml")
    ids = itertools.count(100)
    columns = tuple(
        replace(column, column_id=number, type=with_ids(column.type, ids.__next__))
        for number, column in enumerate(parsed.columns, 1)
    )
    return replace(parsed, columns=columns, table_id=1, version=1)


def _facts(kind: str) -> str:
    """Returns the facts on which both forms agree."""

    def leaf(column: str, name: str) -> str:
        return f'"{column}".{name}' if kind == "structs" else f"{column}_{name}"

    leaves = [(leaf(column, name), of) for column, fields in _FIELDS.items() for name, of in fields.items()]
    texts = [name for name, of in leaves if of.startswith("string")]
    texts += [f"tags[{n + 1}]" if kind == "structs" else f"tag_{n}" for n in range(_TAGS)]
    numbers = [name for name, of in leaves if not of.startswith("string")]
    return ", ".join([f"count(DISTINCT {name})" for name in texts] + [f"sum({name})::BIGINT" for name in numbers])


def _lines(count: int, seed: int) -> bytes:
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        when = START + timedelta(seconds=seed * 7, milliseconds=number * 40 + rng.randrange(40))
        rows.append({
            "ts": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request": {
                "method": rng.choice(("GET", "GET", "POST", "PUT")),
                "path": f"/recipes/{rng.randrange(5000)}/steps",
                "status": rng.choice((200, 200, 301, 404, 500)),
                "bytes": rng.randrange(100, 10_000_000),
            },
            "user": {
                "id": rng.randrange(1, 5_000_000),
                "plan": rng.choice(("free", "plus", "pro")),
                "country": rng.choice(("JP", "GB", "ES", "US")),
            },
            "device": {
                "os": rng.choice(("ios", "android", "web")),
                "version": rng.randrange(1, 40),
                "agent": rng.choice(AGENTS),
            },
            "tags": [f"t{rng.randrange(400)}" for _ in range(_TAGS)],
        })  # fmt: skip
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


@dataclass(frozen=True)
class Case:
    """The same lines in `staging/` below a folder, in one of the two forms."""

    root: Path
    kind: str
    objects: int
    lines: int

    @property
    def rows(self) -> int:
        return self.objects * self.lines

    def convert(self) -> None:
        """Converts all objects of `staging/` to `lake/`, one after another, as a task does."""
        pa.set_cpu_count(1)
        for number in range(self.objects):
            self.convert_one(number)

    def convert_one(self, number: int) -> Sequence[DataFile]:
        table, key = _table(self.kind), f"{number:05}.gz"
        length = (self.root / "staging" / key).stat().st_size
        result = convert_one(local_lake(self.root), table, number + 1, key, length, RECEIVED, metric_columns=(1,))
        return result.objects

    def merge(self, files: Sequence[DataFile]) -> None:
        """Merges small objects of one day into one object."""
        stores, lake = local_lake(self.root)
        (self.root / "lake" / "merged.parquet").unlink(missing_ok=True)
        task = WriteTask(
            number=0,
            inputs=tuple(files),
            output_key="merged.parquet",
            table_id=1,
            definition_version=1,
            metric_columns=(1,),
        )
        result = write_object(task, _table(self.kind), stores, lake)
        assert result.failure is None, result.failure

    def outcome(self, objects: str) -> Sequence[object]:
        """Facts about all rows of some objects. Times of outputs with other facts mean nothing."""
        found = f"SELECT count(*), epoch_ms(min(time)), epoch_ms(max(time)), {_facts(self.kind)}"
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            statement = f"{found} FROM read_parquet('{self.root / 'lake' / objects}', hive_partitioning = false)"
            (row,) = connection.execute(statement).fetchall()
        return tuple(row)


def _write(roots: Sequence[Path], count: int, number: int) -> None:
    body = gzip.compress(_lines(count, number), 6, mtime=0)
    for root in roots:
        (root / "staging" / f"{number:05}.gz").write_bytes(body)


def _cases(folder: Path, objects: int, lines: int, pool: ProcessPoolExecutor) -> list[Case]:
    """Writes the same objects for both forms, nested first."""
    cases = [Case(folder / kind, kind, objects, lines) for kind in ("structs", "paths")]
    for case in cases:
        for bucket in ("staging", "lake"):
            (case.root / bucket).mkdir(parents=True)
    list(pool.map(partial(_write, [case.root for case in cases], lines), range(objects), chunksize=16))
    return cases


def _race(
    works: Mapping[str, tuple[Callable[[], None], Callable[[], None], Callable[[], Sequence[object]]]], rounds: int
) -> Mapping[str, list[Usage]]:
    """Runs preparations and works in turn, and compares the outcomes of the first turn. Raises ValueError."""
    with ExitStack() as held:
        processes = {name: held.enter_context(WarmProcess(prepare_worker)) for name in works}
        found: dict[str, list[Usage]] = {name: [] for name in works}
        for number in range(rounds + 1):
            for name, (prepare, work, _) in works.items():
                prepare()
                usage = processes[name].run(work)
                if number:
                    found[name].append(usage)
            if not number:
                outcomes = [outcome() for _, _, outcome in works.values()]
                if outcomes[0] != outcomes[1]:
                    raise ValueError(f"the outputs differ: {outcomes}")
                print(f"both gave {outcomes[0]}", flush=True)
    return found


def _empty(case: Case) -> None:
    shutil.rmtree(case.root / "lake")
    (case.root / "lake").mkdir()


def _convert_race(folder: Path, objects: int, lines: int, rounds: int, pool: ProcessPoolExecutor) -> tuple[Grid, float]:
    cases = _cases(folder, objects, lines, pool)
    works = {case.kind: (partial(_empty, case), case.convert, partial(case.outcome, "**/*.parquet")) for case in cases}
    found = {name: [usage.core_seconds for usage in usages] for name, usages in _race(works, rounds).items()}
    rows = cases[0].rows
    grid = _grid(
        "Conversion", "core-s per million rows", {n: [each / rows * 1e6 for each in f] for n, f in found.items()}
    )
    return grid, median_ratio(found["structs"], found["paths"])


def _merge_race(folder: Path, objects: int, lines: int, rounds: int, pool: ProcessPoolExecutor) -> tuple[Grid, float]:
    works, megabytes = {}, {}
    for case in _cases(folder, objects, lines, pool):
        files = [file for made in pool.map(case.convert_one, range(objects), chunksize=16) for file in made]
        megabytes[case.kind] = sum(file.content_length for file in files) / 1e6
        works[case.kind] = (lambda: None, partial(case.merge, files), partial(case.outcome, "merged.parquet"))
    used = _race(works, rounds)
    found = {name: [megabytes[name] / usage.core_seconds for usage in usages] for name, usages in used.items()}
    title = ", ".join(f"{name} {size:.1f} MB" for name, size in megabytes.items())
    return _grid(f"Merge: {title}", "MB a core-s", found), median_ratio(found["structs"], found["paths"])


def _grid(title: str, unit: str, found: Mapping[str, Sequence[float]]) -> Grid:
    lines = [
        (name, f"{statistics.median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}")
        for name, values in found.items()
    ]
    return Grid(title, ("form", unit, "least to most"), tuple(lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench nested", description=__doc__)
    parser.add_argument("--objects", type=int, default=20, help="objects to convert")
    parser.add_argument("--lines", type=int, default=10_000, help="lines of each object to convert")
    parser.add_argument("--merged", type=int, default=1_000, help="small objects to merge")
    parser.add_argument("--rows", type=int, default=1_500, help="rows of each small object")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder, ProcessPoolExecutor() as pool:
        converted, np1 = _convert_race(Path(folder, "c"), options.objects, options.lines, options.rounds, pool)
        merged, np5 = _merge_race(Path(folder, "m"), options.merged, options.rows, options.rounds, pool)
    report = Report(
        entry="nested",
        title="Nested columns against the same leaves as columns",
        verdicts=(
            Verdict("NP1", "core-s, structs : paths", np1, _MOST_CORE_SECONDS, at_most=True),
            Verdict("NP5", "MB a core-s of merges, structs : columns", np5, _LEAST_MEGABYTES),
        ),
        grids=(converted, merged),
        notes=(
            f"{options.objects} gzip objects of {options.lines:,} lines with three structs and a list of texts, and "
            f"{options.merged:,} small objects of {options.rows:,} of these rows; {options.rounds} rounds in turn, "
            f"each in a warm process of one thread. Both forms gave the same values. {kernel_in_use()}",
        ),
        bars=(Bar("structs : paths, conversion", np1, True), Bar("structs : columns, merge", np5, True)),
        bars_label="ratio to the same leaves as columns",
        figures={"conversion, core-s, structs : paths": round(np1, 3), "merge, MB a core-s": round(np5, 3)},
    )
    return 0 if report.publish() else 1


if __name__ == "__main__":
    sys.exit(main())
