"""IP1: many small files of a day into one, from the merge until Iceberg readers see it, against Spark's own rewrite.

Both begin with an Iceberg table over the same small objects in the same S3 server. Ours claims the merge in PostgreSQL,
sorts by time, checks fingerprints, and commits. Spark's `rewrite_data_files` packs files without sorting.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from rich.console import Console

from bench.harness import System, race
from bench.iceberg_rows import Row
from bench.platform import NOW, TABLE, upload, write_objects
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.engine.sessions import connect
from prism_assets.publishers.iceberg.schema import iceberg_schema
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream
from prism_local.readers.spark_catalog import spark_catalog

_HOUR = 2
_PEERS = "bench_peers"
_SUMS = "SELECT count(*), count(DISTINCT request_id), sum(user_id), min(time), max(time) FROM prism.{}"


class Prism:
    """Each round merges and publishes its own table with a closed day."""

    def __init__(self, context: StageContext, spark: Any, objects: Path, folder: Path, rounds: int) -> None:
        self._context, self._spark, self._objects = context, spark, objects
        tables = folder / "tables"
        tables.mkdir()
        for number in range(rounds + 1):
            text = TABLE.format(table=f"round{number}").replace(
                "merge: {interval: 0}", "merge: {interval: 0}\niceberg: true"
            )
            (tables / f"round{number}.yaml").write_text(text)
        run_apply(context, tables, NOW)

    def prepare(self, number: int) -> None:
        names = [f"bench.round{number}"]
        upload(self._context, self._objects, f"round{number}/")
        run_discover(self._context, now=NOW, names=names)
        run_stream(self._context, now=NOW, names=names)
        run_catalog(self._context, now=NOW, names=names)
        assert run_iceberg(self._context, now=NOW, names=names, ignore_pace=True).errors == ()

    def work(self, number: int) -> None:
        names = [f"bench.round{number}"]
        merged = run_merge(self._context, now=NOW, names=names)
        assert [len(entry.sizes) for entry in merged.merged] == [1]
        (report,) = run_iceberg(self._context, now=NOW, names=names, ignore_pace=True).tables
        assert report.commit is not None
        assert (report.commit.operation, report.commit.files_in) == ("replace", 1)

    def outcome(self, number: int) -> Mapping[str, object]:
        return _outcome(self._spark, f"bench_iceberg.round{number}")


class SparkRewrite:
    """Rewrites its own table over the same round's small objects."""

    def __init__(self, context: StageContext, spark: Any) -> None:
        self._context, self._spark = context, spark

    def prepare(self, number: int) -> None:
        (ours,) = self._context.choose_tables([f"bench.round{number}"])
        loaded = self._context.iceberg.load(ours)
        assert loaded is not None
        first = min(loaded.table.metadata.snapshots, key=lambda item: item.timestamp_ms)
        files = [task.file for task in loaded.table.scan(snapshot_id=first.snapshot_id).plan_files()]
        listed = [listed_file(file.file_path, file.record_count, file.file_size_in_bytes) for file in files]
        create_listed(self._context, f"round{number}", ours, listed)

    def work(self, number: int) -> None:
        rewrite(self._spark, f"round{number}")

    def outcome(self, number: int) -> Mapping[str, object]:
        return _outcome(self._spark, f"{_PEERS}.round{number}")


def create_listed(context: StageContext, name: str, ours: TableDefinition, files: Sequence[DataFile]) -> None:
    """Creates a table of peers over stored objects, with the columns of ours and without days."""
    columns = [field for field in iceberg_schema(ours).fields if field.name != DAY_COLUMN]
    catalog = context.iceberg.catalog
    catalog.create_namespace_if_not_exists(_PEERS)
    location = f"s3://{context.lake.bucket}/peers/{name}"
    table = catalog.create_table((_PEERS, name), Schema(*columns), location=location)
    assert [field.field_id for field in table.schema().fields] == [field.field_id for field in columns]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def rewrite(spark: Any, name: str) -> None:
    """Has Spark rewrite a table of peers."""
    options = "map('min-input-files', '2', 'target-file-size-bytes', '134217728')"
    spark.sql(f"CALL prism.system.rewrite_data_files(table => '{_PEERS}.{name}', options => {options})").collect()


def listed_file(url: str, row_count: int, size: int) -> DataFile:
    """Returns a small object as a table without days lists it."""
    listed = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=row_count,
        file_size_in_bytes=size,
    )
    listed.spec_id = 0
    return listed


def _outcome(spark: Any, table: str) -> Mapping[str, object]:
    (row,) = spark.sql(_SUMS.format(table)).collect()
    (files,) = spark.sql(f"SELECT count(*) FROM prism.{table}.files").collect()
    return {"rows": row[0], "requests": row[1], "users": row[2], "first": row[3], "last": row[4], "files": files[0]}


def small_files_into_one(
    context: StageContext, folder: Path, files: int, rows: int, rounds: int, console: Console
) -> list[Row]:
    """Races merges of small files with equally many rows, in `rounds` rounds after one that does not count."""
    objects = folder / "objects"
    write_objects(objects, files, rows, hour=_HOUR)
    spark: Any = connect(context.settings.spark_remote)
    for name, value in spark_catalog(context.settings).items():
        spark.conf.set(f"spark.sql.catalog.prism{name}", value)
    prism, peer = Prism(context, spark, objects, folder, 1 + rounds), SparkRewrite(context, spark)
    ours, theirs = race(
        [
            System("prism", prism.prepare, prism.work, prism.outcome),
            System("Spark rewrite_data_files", peer.prepare, peer.work, peer.outcome),
        ],
        rounds,
        warmups=1,
    )
    ratio = statistics.median(other / own for own, other in zip(ours.seconds, theirs.seconds, strict=True))
    console.print(f"IP1 {files} files of {rows} rows: {ours.seconds} s, Spark {theirs.seconds} s")
    cells = (f"{ours.median:.2f} s", f"{theirs.median:.2f} s", f"{ratio:.1f} x")
    return [Row(f"IP1 {files:,} files of {rows} rows into 1, until readable", *cells, ">= 3 x", ratio >= 3)]
