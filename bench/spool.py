"""Messages of Kafka into spool objects: MB a core-second with the PUT, against two loops over a consumer.

One drops the messages. The other one writes the same columns to Parquet in S3, and keeps no offsets: a death loses or
doubles messages there.

One process does all: librdkafka, Parquet, PUT and PostgreSQL's client. Its own time counts, that of servers does not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from bench.cores import OWN, OwnCores
from bench.platform import TABLE, bench_stack
from bench.report import Grid, Report, Verdict
from bench.topics_data import create_topics, fill
from prism_assets.domain.streams.topic import FLUSH_BYTES
from prism_assets.engine.allocator import keep_memory
from prism_assets.engine.collector import collect_seldom, settle
from prism_assets.kafka.connections import READING
from prism_assets.kernels.messages.spool_file import SCHEMA
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.spooler import Spooler

_LEAST = 120.0
_PARTITIONS = 4


def _apply(context: StageContext, folder: Path, rounds: int, topic: str) -> None:
    """Makes a table for each round, so that each round reads the whole topic."""
    tables = folder / "tables"
    tables.mkdir()
    for number in range(rounds):
        name = f"spool{number}"
        text = TABLE.format(table=name).replace(f'url: "s3://prism-staging/{name}/"', f"topic: {topic}")
        (tables / f"{name}.yaml").write_text(text)
    run_apply(context, tables, datetime.now(timezone.utc))


def _spool(context: StageContext, table: str, messages: int) -> None:
    """Reads the topic of one table to its end."""
    (found,) = context.choose_tables([table])
    spooler = Spooler(
        context,
        context.kafka.of("main"),
        "bench",
        clock=lambda: datetime.now(timezone.utc),
        wanted=lambda: [found.table_id],
    )
    while spooler.figures.messages < messages:
        spooler.turn()
        if spooler.errors:
            raise RuntimeError(spooler.errors[0])
    spooler.stop()
    spooler.close()


def _consume(servers: str, topic: str, messages: int) -> None:
    """The peer reads the same messages, and keeps none."""
    consumer = Consumer({**READING, "bootstrap.servers": servers, "log_level": 0})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    count = 0
    while count < messages:
        count += sum(1 for message in consumer.consume(10_000, 1.0) if not message.error())
    consumer.close()


def _copy(context: StageContext, servers: str, topic: str, messages: int, prefix: str) -> None:
    """The other peer writes the same messages to S3, with no lease, position, check or fence."""
    consumer = Consumer({**READING, "bootstrap.servers": servers, "log_level": 0})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    count = objects = size = 0
    held: list[Any] = []
    while count < messages or held:
        found = [message for message in consumer.consume(10_000, 1.0) if not message.error()]
        count, size = count + len(found), size + sum(map(len, found))
        held += found
        if held and (size > FLUSH_BYTES or count >= messages):
            objects += 1
            context.stores.put_new(context.lake.bucket, f"{prefix}/{objects}.parquet", _parquet(held))
            held, size = [], 0
    consumer.close()


def _parquet(messages: Sequence[Any]) -> bytes:
    columns = {
        "partition": pa.array([message.partition() for message in messages], pa.int32()),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
        "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "headers": pa.array([message.headers() for message in messages], SCHEMA.field("headers").type),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=["partition"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=False,
    )
    return bytes(sink.getvalue())


def _core_seconds(work: Callable[[], None]) -> float:
    meter = OwnCores()
    before = meter.read()[OWN]
    work()
    return meter.read()[OWN] - before


def _check(context: StageContext, table: str, messages: int) -> None:
    """Raises ValueError unless the ranges of a table have every message once."""
    with context.database.begin() as connection:
        found = connection.exec_driver_sql(
            "SELECT sum(r.records), sum(r.to_offset - coalesce(r.from_offset, r.to_offset)) FROM prism_offset_ranges r "
            "JOIN prism_topics t USING (prism_topic_id) JOIN prism_streams s USING (prism_stream_id) "
            "WHERE s.stream_name = %(table)s",
            {"table": table},
        ).one()
    if tuple(found) != (messages, messages):
        raise ValueError(f"{table} has {found} of {messages} messages")


def main() -> int:
    """Races the three. Returns exit status 1 where a goal is not reached."""
    parser = argparse.ArgumentParser(prog="scripts/bench spool", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with bench_stack({"postgres", "aws", "s3", "kafka"}) as (_, folder):
        servers = os.environ["PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS"]
        context = build_context(load_settings())
        create_topics(servers, ["bench"], _PARTITIONS)
        size = fill(servers, "bench", options.messages, _PARTITIONS)
        _apply(context, folder, options.rounds, "bench")
        collect_seldom()  # as `prism worker` does, for all ways
        settle()
        keep_memory()
        ways: dict[str, Callable[[int], None]] = {
            "prism": lambda number: _spool(context, f"bench.spool{number}", options.messages),
            "loop without offsets": lambda number: _copy(context, servers, "bench", options.messages, f"copy{number}"),
            "consumer, drops the messages": lambda number: _consume(servers, "bench", options.messages),
        }
        used: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name, way in ways.items():
                used[name].append(_core_seconds(partial(way, number)))
            _check(context, f"spool{number}", options.messages)
        context.database.dispose()
    rates = {name: size / 1e6 / statistics.median(seconds) for name, seconds in used.items()}
    rows = tuple((name, f"{rate:.0f}") for name, rate in rates.items())
    report = Report(
        entry="spool",
        title="Messages of Kafka into spool objects",
        verdicts=(Verdict("LP3", "a core, with the PUT", rates["prism"], _LEAST, "MB/s"),),
        grids=(Grid("Reading a topic", ("process", "MB a core-second"), rows),),
        notes=(f"{options.messages:,} messages, {size / 1e6:.0f} MB of JSON, in {_PARTITIONS} partitions, zstd.",),
        figures={f"{name}, MB a core-second": round(rate, 1) for name, rate in rates.items()},
    )
    return 0 if report.publish() else 1


if __name__ == "__main__":
    sys.exit(main())
