"""Topics of Kafka through a live worker: seconds from a message to its row, at an even rate.

A row is readable when its batch is committed: its small object then lies in the folder that readers list. The time of a
message is the one that its producer gave it. All rows of the last half of the traffic count, and every message must be
a row once.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.cores import FamilyCores
from bench.live_worker import WorkerProcess, until_held
from bench.platform import bench_stack
from bench.report import Grid, Report, Verdict
from bench.soak_report import percentile
from bench.topics_data import create_topics, run_traffic
from bench.traffic import noon_zone
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext

_P50, _P99 = 2.0, 5.0
_PARTITIONS = 2
_START_SECONDS = 120.0
_TABLE = """\
schema: bench
table: {table}
streams:
  - {{name: {table}, topic: {table}}}
partition: {{column: time, timezone: {zone}}}
columns:
  - {{name: time, type: timestamp, required: true}}
  - {{name: id, type: bigint}}
  - {{name: path, type: string}}
  - {{name: status, type: integer}}
  - {{name: sent, type: timestamp, source: "@timestamp"}}
  - {{name: object, type: bigint, source: "@object_id"}}
merge: {{interval: 3600}}
"""


def _apply(context: StageContext, folder: Path, names: list[str]) -> None:
    tables = folder / "tables"
    tables.mkdir()
    zone = noon_zone(datetime.now(timezone.utc))
    for name in names:
        (tables / f"{name}.yaml").write_text(_TABLE.format(table=name, zone=zone))
    run_apply(context, tables, datetime.now(timezone.utc))


def _await(what: str, seconds: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.5)


def _read(context: StageContext, names: list[str]) -> list[float]:
    """Returns the seconds of each message of the last half, and raises ValueError for a lost or doubled one."""
    with context.database.begin() as connection:
        finished: dict[int, float] = dict(
            connection.exec_driver_sql(
                "SELECT prism_staging_object_id, extract(epoch FROM finish_time)::float8 FROM prism_staging_objects"
            ).all()
        )
    seconds: list[float] = []
    for table in context.choose_tables(names):
        folder = f"{context.lake.keys(table).root}live/"
        found = context.stores.list(context.lake.bucket, folder)
        bodies = [context.stores.get(context.lake.bucket, item.key) for item in found]
        seconds += _of_table(str(table.name), bodies, finished)
    return sorted(seconds)


def _of_table(name: str, bodies: list[bytes], finished: dict[int, float]) -> list[float]:
    rows = pa.concat_tables(pq.read_table(io.BytesIO(body), columns=["id", "sent", "object"]) for body in bodies)
    with duckdb.connect() as connection:
        connection.register("found", rows)
        ((count, distinct, last),) = connection.execute(
            "SELECT count(*), count(DISTINCT id), max(id) FROM found"
        ).fetchall()
        half = connection.execute(
            "SELECT object, epoch_us(sent) / 1e6 FROM found WHERE id > (SELECT max(id) / 2 FROM found)"
        ).fetchall()
    if not count == distinct == last + 1:
        raise ValueError(f"{name} has {count} rows of {last + 1} messages, {distinct} different ones")
    return [finished[number] - sent for number, sent in half]


def main() -> int:
    """Lets messages arrive. Returns exit status 1 beyond the limits."""
    parser = argparse.ArgumentParser(prog="scripts/bench topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second for each topic")
    parser.add_argument("--minutes", type=float, default=3.0)
    options = parser.parse_args()
    names = [f"topic{number}" for number in range(options.topics)]
    with bench_stack({"postgres", "aws", "s3", "kafka"}) as (_, folder), ExitStack() as held:
        os.environ["PRISM_SPARK_REMOTE"] = "in-process"
        os.environ["PRISM_TABLES_DIR"] = str(folder / "tables")
        servers = os.environ["PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS"]
        context = build_context(load_settings())
        held.callback(context.database.dispose)
        create_topics(servers, names, _PARTITIONS)
        _apply(context, folder, names)
        worker = held.enter_context(WorkerProcess(folder / "worker.log", 0.0))

        def reads_all() -> bool:
            sql = "SELECT count(*) FROM prism_topic_partitions WHERE lease_token IS NOT NULL"
            with context.database.begin() as connection:
                return bool(connection.exec_driver_sql(sql).scalar_one() == len(names) * _PARTITIONS)

        until_held(context, len(names))
        _await("the worker does not read all partitions", _START_SECONDS, reads_all)
        expected = len(names) * int(options.minutes * 600) * max(1, options.rate // 10)
        meter = FamilyCores(worker.family()[0])
        before = meter.read()
        run_traffic(servers, names, options.rate, options.minutes * 60, _PARTITIONS)

        def is_done() -> bool:
            with context.database.begin() as connection:
                sql = "SELECT coalesce(sum(rows_out), 0) FROM prism_staging_objects WHERE state = 'done'"
                return bool(connection.exec_driver_sql(sql).scalar_one() >= expected)

        _await("the messages do not become rows", 120.0, is_done)
        cores = (meter.read() - before) / (options.minutes * 60)
        seconds = _read(context, [f"bench.{name}" for name in names])
    half, most = (percentile(seconds, len(seconds), share) for share in (0.5, 0.99))
    report = Report(
        entry="topics",
        title="Topics of Kafka through a live worker",
        verdicts=(
            Verdict("LP4", "from a message to its row, p50", half, _P50, "s", at_most=True),
            Verdict("LP4", "from a message to its row, p99", most, _P99, "s", at_most=True),
        ),
        grids=(
            Grid(
                "From a message to its row",
                ("figure", "value"),
                (
                    ("p50, s", f"{half:.2f}"),
                    ("p99, s", f"{most:.2f}"),
                    ("last, s", f"{seconds[-1]:.2f}"),
                    ("cores of the worker", f"{cores:.2f}"),
                ),
            ),
        ),
        notes=(
            f"{options.topics} topics of {_PARTITIONS} partitions, {options.rate:,} messages a second each, "
            f"{options.minutes:g} minutes; {expected:,} of {expected:,} messages are a row once.",
        ),
        figures={"p50": round(half, 3), "p99": round(most, 3), "cores of the worker": round(cores, 3)},
    )
    return 0 if report.publish() else 1


if __name__ == "__main__":
    sys.exit(main())
