"""The peer of the soak: Spark Structured Streaming reads the same traffic into one Iceberg table, every ten seconds.

One query reads the prefixes of all tables into one table, because a query a table would start a hundred jobs for each
trigger. It casts columns by a given schema and checks nothing. Afterwards Iceberg's own metadata say when the rows of
each object became readable: at the commit of the snapshot with their first file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.cores import StackCores
from bench.platform import bench_stack
from bench.report import Grid, Report, Verdict
from bench.soak_report import percentile
from bench.traffic import BUCKET, SCHEMA, Traffic, add_options, drop
from prism_assets.engine.sessions import connect
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.context import StageContext
from prism_local.readers.spark_catalog import spark_catalog
from prism_local.stack import LocalStack

_TABLE = f"peer.{SCHEMA}.log"
_ROWS = "time timestamp, id bigint, session string, path string, status int, elapsed double, ua string"
_TRIGGER = "10 seconds"
_PAUSE = 2.0
_READABLE = f"""
SELECT rows.number, min(unix_millis(s.committed_at)) / 1000 AS seconds
FROM (SELECT DISTINCT id DIV {{lines}} AS number, _file AS path FROM {_TABLE}) rows
JOIN {_TABLE}.all_entries e ON e.data_file.file_path = rows.path
JOIN {_TABLE}.snapshots s ON s.snapshot_id = e.snapshot_id
GROUP BY 1
"""


def stream(stack: LocalStack, context: StageContext, folder: Path, traffic: Traffic, drain: float) -> Report:
    """Runs the query while the objects arrive, and until all are readable or `drain` seconds are over."""
    spark: Any = connect(context.settings.spark_remote)
    for name, value in spark_catalog(context.settings).items():
        spark.conf.set(f"spark.sql.catalog.peer{name}", value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS peer.{SCHEMA}")
    spark.sql(f"CREATE TABLE {_TABLE} ({_ROWS}) USING iceberg")
    lines = spark.readStream.schema(_ROWS).json(f"s3a://{BUCKET}/*/")
    writer = lines.writeStream.format("iceberg").trigger(processingTime=_TRIGGER)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).toTable(_TABLE)
    meter = StackCores(stack)
    before, begun = meter.read(), time.monotonic()
    try:
        arrived = dict(drop(context.stores, traffic))
        deadline = time.monotonic() + drain
        while _count(spark) < traffic.objects * traffic.lines and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    finally:
        query.stop()
    seconds = time.monotonic() - begun
    after = meter.read()
    found = {row.number: float(row.seconds) for row in spark.sql(_READABLE.format(lines=traffic.lines)).collect()}
    latencies = tuple(sorted(found[number] - when for number, when in arrived.items() if number in found))
    spent = {name: after[name] - before[name] for name in after}
    return _report(traffic, latencies, _count(spark), seconds, spent)


def _count(spark: Any) -> int:
    (row,) = spark.sql(f"SELECT count(*) FROM {_TABLE}").collect()
    return int(row[0])


def _report(
    traffic: Traffic, latencies: tuple[float, ...], rows: int, seconds: float, spent: Mapping[str, float]
) -> Report:
    shares = {share: percentile(latencies, traffic.objects, share / 100) for share in (50, 99)}
    return Report(
        entry="structured",
        title="Spark Structured Streaming into Iceberg: from arrival to readable",
        verdicts=(Verdict("", "rows that became readable", float(rows), float(traffic.objects * traffic.lines), ""),),
        grids=(
            Grid(
                "From arrival to readable",
                ("of the objects", "through Iceberg, s"),
                tuple((f"{share} %", f"{value:.1f}") for share, value in shares.items()),
            ),
            Grid(
                "Processes",
                ("processes", "CPU s", "cores"),
                tuple((name, f"{used:.0f}", f"{used / seconds:.2f}") for name, used in sorted(spent.items())),
            ),
        ),
        notes=(
            f"{traffic.tables} prefixes, {traffic.rate:g} objects a minute each for {traffic.minutes:g} minutes, "
            f"{traffic.lines} rows an object. One query for all prefixes, a trigger of {_TRIGGER}.",
        ),
        figures={f"p{share}: s": round(value, 2) for share, value in shares.items()},
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench structured", description=__doc__)
    add_options(parser, minutes=5.0)
    options = parser.parse_args()
    traffic = Traffic(options.tables, options.rate, options.minutes, options.lines)
    with bench_stack() as (stack, folder):
        context = build_context(load_settings())
        return 0 if stream(stack, context, folder, traffic, options.drain_seconds).publish() else 1


if __name__ == "__main__":
    sys.exit(main())
