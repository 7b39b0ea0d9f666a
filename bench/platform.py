"""A local stack for one benchmark, and its log rows."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb

from bench.spark_on_s3 import write_defaults
from prism_assets.engine.sessions import connect
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_local.stack import SERVERS, LocalStack

NOW = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)

TABLE_HEAD = """\
schema: bench
table: {table}
description: rows of a benchmark
owner: team:bench
streams:
  - {{name: {table}, url: "s3://prism-staging/{table}/"}}
partition: {{column: time}}
accept: {{from: arrival}}
"""
TABLE = (
    TABLE_HEAD
    + """\
columns:
  - {{name: time, type: timestamp, source: event_time, required: true}}
  - {{name: request_id, type: string, length: 36}}
  - {{name: user_id, type: bigint}}
  - {{name: session, type: string, length: 64}}
  - {{name: path, type: string, length: 2000}}
  - {{name: status, type: integer}}
  - {{name: elapsed, type: double}}
  - {{name: premium, type: boolean}}
  - {{name: ua, type: string, length: 500}}
  - {{name: referer, type: string, length: 500}}
merge: {{interval: 0}}
"""
)
SPARK_SCHEMA = (
    "event_time timestamp, request_id string, user_id bigint, session string, path string, status int, "
    "elapsed double, premium boolean, ua string, referer string"
)

_SUMMARY = (
    "SELECT count(*) AS rows, count(DISTINCT request_id) AS requests, sum(user_id)::BIGINT AS users, "
    "round(sum(elapsed), 3) AS elapsed, epoch_ms(min({time})) AS first, epoch_ms(max({time})) AS last "
    "FROM read_parquet('{files}', hive_partitioning = false)"
)
AGENTS = [f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.{n} Chrome/{100 + n}.0 Safari/537.{n}" for n in range(40)]
_PATHS = [f"/recipes/{n}/steps" for n in range(5000)]


def log_lines(count: int, seed: int, hour: int = 20) -> bytes:
    """Returns JSON Lines of about 350 bytes each in the order written, starting in `hour` of 1 March.

    From 20 o'clock on they extend into the next day, so that an object has rows of two event dates.
    """
    rng = random.Random(seed)
    start = datetime(2026, 3, 1, hour, tzinfo=timezone.utc) + timedelta(seconds=seed * 7)
    lines = []
    for number in range(count):
        when = start + timedelta(milliseconds=number * 2_000 // max(1, count // 14_400 + 1) + rng.randrange(900))
        row = {
            "event_time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request_id": f"{rng.getrandbits(128):032x}",
            "user_id": rng.randrange(1, 5_000_000),
            "session": f"{rng.getrandbits(64):016x}",
            "path": rng.choice(_PATHS),
            "status": rng.choice((200, 200, 200, 301, 404, 500)),
            "elapsed": round(rng.expovariate(5), 6),
            "premium": rng.random() < 0.2,
            "ua": rng.choice(AGENTS),
            "referer": f"https://example.com{rng.choice(_PATHS)}",
        }
        lines.append(json.dumps(row, separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


def write_objects(folder: Path, objects: int, lines: int, hour: int = 20) -> int:
    """Writes gzip objects to a folder. Returns the bytes of JSON in them."""
    folder.mkdir(parents=True)
    total = 0
    for number in range(objects):
        body = log_lines(lines, number, hour)
        total += len(body)
        (folder / f"{number:05d}.json.gz").write_bytes(gzip.compress(body, 6, mtime=0))
    return total


def apply_rounds(context: StageContext, folder: Path, rounds: int, columns: Mapping[str, str] | None = None) -> None:
    """Creates a table `bench.round{number}` for each round from 0 on, so that each round works on the same rows.

    `columns` are lines of a table file by name. They add tables `bench.{name}{number}` with these columns.
    """
    tables = folder / "tables"
    tables.mkdir()
    for name, more in (columns or {"round": ""}).items():
        for number in range(rounds + 1):
            text = TABLE.format(table=f"{name}{number}").replace("merge: ", f"{more}merge: ")
            (tables / f"{name}{number}.yaml").write_text(text)
    run_apply(context, tables, NOW)


def upload(context: StageContext, folder: Path, prefix: str) -> None:
    """Puts the objects of a folder into the staging bucket under a prefix."""
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda path: context.stores.put("prism-staging", f"{prefix}{path.name}", path.read_bytes()),
                sorted(folder.iterdir()),
            )
        )


def download(context: StageContext, part_of_key: str, target: Path) -> None:
    """Copies the lake's Parquet objects whose keys contain `part_of_key` to an empty folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for index, item in enumerate(context.stores.list("prism-lake", "")):
        if part_of_key in item.key and item.key.endswith(".parquet"):
            (target / f"{index}.parquet").write_bytes(context.stores.get("prism-lake", item.key))


def summary(files: str, time: str) -> Mapping[str, object]:
    """Returns facts two systems must agree on before their times count."""
    with duckdb.connect() as connection:
        result = connection.execute(_SUMMARY.format(files=files, time=time))
        names = [column[0] for column in result.description or ()]
        return dict(zip(names, result.fetchall()[0], strict=True))


@contextmanager
def bench_stack(services: Collection[str] = SERVERS) -> Iterator[tuple[LocalStack, Path]]:
    """Yields a fresh local stack with its settings in the environment, and a folder for files. Deletes both.

    A stack with all services has a Spark that reads and writes S3 for peers.
    """
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        stack = LocalStack(Path(folder) / ".prism")
        # Whoever ends a benchmark ends its servers, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            _up(stack, services)
            os.environ.update(stack.environment())
            yield stack, Path(folder)
        finally:
            stack.reset()


def _up(stack: LocalStack, services: Collection[str]) -> None:
    def progress(service: str, message: str) -> None:
        print(f"{service}: {message}", flush=True)

    if "spark" in services:
        stack.up(progress, set(services) - {"spark"})
        write_defaults(stack)
    stack.up(progress, services)


@contextmanager
def bench_platform() -> Iterator[tuple[StageContext, Path]]:
    """Yields a context on a fresh local stack, and a folder for files. Deletes both."""
    with bench_stack() as (_, folder):
        try:
            yield build_context(load_settings()), folder
        finally:
            # A session on a stopped server would delay the exit of this process by minutes.
            connect(os.environ["PRISM_SPARK_REMOTE"]).stop()
