"""The memory of one task that converts one plain JSON object of 1 GB. Merges are in `scripts/bench merge_kernel`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import duckdb

from bench.kernel import convert_all, kernel_in_use
from bench.report import Grid, Report, Verdict
from bench.sets import BENCH
from bench.warm import WarmProcess
from prism_assets.engine.worker import prepare_worker

_BLOCK_LINES = 20_000


def write_object(path: Path, megabytes: int) -> tuple[int, int]:
    """Writes lines of the set bench until the size is reached. Returns lines and bytes."""
    lines = size = number = 0
    with path.open("wb") as file:
        while size < megabytes * 1_000_000:
            body = b"\n".join(BENCH.lines(_BLOCK_LINES, number % 20)) + b"\n"
            size += file.write(body)
            lines += _BLOCK_LINES
            number += 1
    return lines, size


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench memory", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        root = Path(folder)
        for name in ("staging", "lake"):
            (root / name).mkdir()
        path = root / "staging" / "large.json"
        lines, size = write_object(path, options.megabytes)
        with WarmProcess(prepare_worker) as process:
            used = process.run(partial(convert_all, root, BENCH.name, [path]))
        with duckdb.connect() as connection:
            statement = f"SELECT count(*) FROM read_parquet('{root}/lake/**/*.parquet')"
            (rows,) = connection.execute(statement).fetchall()[0]
    if rows != lines:
        raise ValueError(f"{lines} lines gave {rows} rows")
    peak = used.peak_bytes / 1e6
    row = (f"{size / 1e6:,.0f}", f"{lines:,}", f"{used.seconds:.1f}", f"{used.core_seconds:.1f}", f"{peak:,.0f}")
    return (
        0
        if Report(
            entry="memory",
            title="Memory: one object of 1 GB",
            verdicts=(Verdict("P12", "peak RSS, JSON of 1 GB", peak, 1_500, "MB", at_most=True),),
            grids=(Grid("One task", ("MB of JSON", "lines", "s", "core-s", "peak RSS, MB"), (row,)),),
            notes=(f"One plain object of JSON lines, in a process of its own. {kernel_in_use()}",),
            figures={"peak MB": round(peak)},
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
