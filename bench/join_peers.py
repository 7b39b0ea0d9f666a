"""The peers of `scripts/bench join`. Each computes a case's records from base and changes in its own way.

All read and write Parquet with zstd on the local disk, and all but Paimon write unsorted. Ours writes an object per
bucket, sorted by key, and checks and computes fingerprints of all rows. Iceberg and Paimon begin with a table of the
base.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import duckdb

from bench.join_case import ALL_COLUMNS, GROUPS, KEY, TIME, Case, columns_of, sequence
from prism_local import jars, java
from prism_local.layout import Layout, default_root

THREADS = 2
_PAIMON = jars.Jar(
    "org.apache.paimon",
    "paimon-bundle",
    "1.4.2",
    48_588_217,
    "85a1587409e6c044b46eb20370a46ecd288576b8bc7aadf6b0432a4f2370f5d1",
)


class Peer(Protocol):
    """Computes the records of a case. `prepare` and `rows` are not timed, `work` is."""

    def prepare(self) -> None: ...

    def work(self) -> None: ...

    def rows(self) -> str:
        """Returns a DuckDB expression that reads the outcome."""
        ...


class _Writing:
    """A peer that writes a folder of Parquet files."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.target = case.folder / f"of-{type(self).__name__}"

    def prepare(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)

    def rows(self) -> str:
        return f"read_parquet('{self.target}/*.parquet')"


def _structs(group: str) -> str:
    return "{" + ", ".join(f"{name}: {name}" for name in columns_of(group)) + "}"


class _DuckDB(_Writing):
    def prepare(self) -> None:
        super().prepare()
        self.target.mkdir()

    def work(self) -> None:
        with duckdb.connect(config={"threads": THREADS, "preserve_insertion_order": False}) as connection:
            target = f"'{self.target}/0.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
            connection.execute(f"COPY ({self.query()}) TO {target}")

    def query(self) -> str:
        raise NotImplementedError

    def changes(self, group: str) -> str:
        return f"read_parquet('{self.case.changes_of(group)}')"


class DuckDBArgMax(_DuckDB):
    """Unions all rows, and takes the row with the greatest sequence of each group."""

    def query(self) -> str:
        parts = [f"SELECT * FROM read_parquet('{self.case.base}')"]
        parts += [f"SELECT * FROM {self.changes(group)}" for group in GROUPS]
        winners = [f"arg_max({_structs(group)}, {sequence(group)}) AS {group}" for group in GROUPS]
        shown = [f"{group}.{name} AS {name}" for group in GROUPS for name in columns_of(group)]
        whole = " UNION ALL BY NAME ".join(parts)
        grouped = f"SELECT {KEY}, min({TIME}) AS {TIME}, {', '.join(winners)} FROM ({whole}) GROUP BY {KEY}"
        return f"SELECT {KEY}, {TIME}, {', '.join(shown)} FROM ({grouped})"


class DuckDBJoins(_DuckDB):
    """Joins the winning change of each key and group to the base."""

    def query(self) -> str:
        joined, shown = f"read_parquet('{self.case.base}') AS base", []
        for group in GROUPS:
            winner = f"arg_max({_structs(group)}, {sequence(group)}) AS won"
            found = f"SELECT {KEY}, min({TIME}) AS {TIME}, {winner} FROM {self.changes(group)} GROUP BY {KEY}"
            joined += f" FULL JOIN ({found}) AS {group} USING ({KEY})"
            wins = f"{group}.won.{sequence(group)} > coalesce(base.{sequence(group)}, -1)"
            shown += [
                f"CASE WHEN {wins} THEN {group}.won.{name} ELSE base.{name} END AS {name}" for name in columns_of(group)
            ]
        times = ", ".join(f"{name}.{TIME}" for name in ("base", *GROUPS))
        return f"SELECT {KEY}, least({times}) AS {TIME}, {', '.join(shown)} FROM {joined}"


class Polars(_Writing):
    """Joins the last change of each key and group to the base; columns are chosen one by one."""

    def prepare(self) -> None:
        super().prepare()
        self.target.mkdir()

    def work(self) -> None:
        import polars as pl

        whole = pl.scan_parquet(self.case.base)
        for group in GROUPS:
            changes = pl.scan_parquet(self.case.changes_of(group)).sort(sequence(group))
            found = changes.group_by(KEY).agg(pl.col(TIME).min(), *(pl.col(name).last() for name in columns_of(group)))
            whole = whole.join(found, on=KEY, how="full", coalesce=True, suffix="_new")
            wins = pl.col(f"{sequence(group)}_new") > pl.col(sequence(group)).fill_null(-1)
            whole = whole.with_columns(
                pl.min_horizontal(TIME, f"{TIME}_new").alias(TIME),
                *(
                    pl.when(wins).then(pl.col(f"{name}_new")).otherwise(pl.col(name)).alias(name)
                    for name in columns_of(group)
                ),
            ).select(ALL_COLUMNS)
        whole.collect().write_parquet(self.target / "0.parquet", compression="zstd", compression_level=1)


def spark_session(folder: Path) -> Any:
    """Returns a session in this process with two cores and an Iceberg catalog in a folder. The caller stops it."""
    from pyspark.sql import SparkSession

    place = Layout(default_root())
    jars.ensure(place)
    settings = {
        "spark.jars": str(jars.path("iceberg", place)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": str(folder / "iceberg"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "spark"),
    }
    builder = SparkSession.builder.appName("bench join").master(f"local[{THREADS}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: Any = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _winners(case: Case, spark: Any, *, with_base: bool) -> Any:
    """Returns one row per key with the columns of each group's greatest sequence."""
    from pyspark.sql import functions as f

    paths = [*([case.base] if with_base else []), *(case.changes_of(group) for group in GROUPS)]
    whole, *rest = (spark.read.parquet(f"file://{path}") for path in paths)
    for other in rest:
        whole = whole.unionByName(other, allowMissingColumns=True)
    winners = [f.max_by(f.struct(*columns_of(group)), f.col(sequence(group))).alias(group) for group in GROUPS]
    found = whole.groupBy(KEY).agg(f.min(TIME).alias(TIME), *winners)
    return found.select(KEY, TIME, *(f"{group}.{name}" for group in GROUPS for name in columns_of(group)))


class SparkMaxBy(_Writing):
    """Unions all rows, and takes the row with the greatest sequence of each group."""

    def __init__(self, case: Case, spark: Any) -> None:
        super().__init__(case)
        self._spark = spark

    def work(self) -> None:
        found = _winners(self.case, self._spark, with_base=True)
        found.write.option("compression", "zstd").parquet(f"file://{self.target}")


class IcebergMerge(_Writing):
    """MERGE INTO the base table, copy on write, from one row per key computed from the changes."""

    _TABLE = "iceberg.bench.requests"

    def __init__(self, case: Case, spark: Any) -> None:
        super().__init__(case)
        self._spark = spark
        self._base: int | None = None

    def prepare(self) -> None:
        super().prepare()
        if self._base is None:
            self._spark.read.parquet(f"file://{self.case.base}").writeTo(self._TABLE).using("iceberg").create()
            ((self._base,),) = self._spark.sql(f"SELECT snapshot_id FROM {self._TABLE}.snapshots").collect()
        self._spark.sql(f"CALL iceberg.system.rollback_to_snapshot('bench.requests', {self._base})").collect()

    def work(self) -> None:
        _winners(self.case, self._spark, with_base=False).createOrReplaceTempView("winners")
        updates = [f"{TIME} = least(base.{TIME}, winners.{TIME})"]
        for group in GROUPS:
            wins = f"winners.{sequence(group)} > coalesce(base.{sequence(group)}, -1)"
            updates += [
                f"{name} = CASE WHEN {wins} THEN winners.{name} ELSE base.{name} END" for name in columns_of(group)
            ]
        self._spark.sql(
            f"MERGE INTO {self._TABLE} AS base USING winners ON base.{KEY} = winners.{KEY} "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(updates)} WHEN NOT MATCHED THEN INSERT *"
        )

    def rows(self) -> str:
        self._spark.table(self._TABLE).write.mode("overwrite").parquet(f"file://{self.target}")
        return super().rows()


class Paimon:
    """A full compaction in Paimon's Java API with partial updates: the base in one level, changes above it."""

    def __init__(self, case: Case) -> None:
        self._folder = case.folder / "paimon"
        self._folder.mkdir()
        self._types = _types(case)
        files = {"base": case.base, **{group: case.changes_of(group) for group in GROUPS}}
        for name, path in files.items():
            _to_text(path, self._folder / f"{name}.tsv")
        jar = jars.ensure_jar(_PAIMON, Layout(default_root()))
        import pyspark

        hadoop = Path(pyspark.__file__).parent / "jars"
        columns = [f"{name}:{self._types[name]}:{_group_of(name)}" for name in ALL_COLUMNS]
        self._log = open(self._folder / "log", "w", encoding="utf-8")  # noqa: SIM115 it lives as long as the process
        self._process = subprocess.Popen(
            [
                *(java.program(), "-Xmx4g", f"-XX:ActiveProcessorCount={THREADS}"),
                *("-cp", f"{jar}{os.pathsep}{hadoop}/*"),
                *(str(Path(__file__).with_name("PaimonJoin.java")), str(self._folder), *columns),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self._wait("ready")
            self._send("load")
        except BaseException:
            self.stop()
            raise
        self._is_fresh = True

    def prepare(self) -> None:
        if not self._is_fresh:
            self._send("back")
        self._is_fresh = False

    def work(self) -> None:
        self._send("compact")

    def rows(self) -> str:
        self._send(f"dump {self._folder}/rows.tsv")
        kinds = {"string": "VARCHAR", "timestamp": "BIGINT", "double": "DOUBLE"}
        columns = {name: kinds.get(self._types[name], "BIGINT") for name in ALL_COLUMNS}
        options = f"columns = {columns}, delim = '\\t', nullstr = '\\N', quote = '', escape = '', header = false"
        read = f"read_csv('{self._folder}/rows.tsv', {options})"
        return f"(SELECT * REPLACE (make_timestamp_ms({TIME}) AS {TIME}) FROM {read})"

    def stop(self) -> None:
        """Ends the process."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _send(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._wait("done")

    def _wait(self, answer: str) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.strip() == answer:
                return
        last = (self._folder / "log").read_text(encoding="utf-8").strip().splitlines()
        reason = next((line for line in last if "rror" in line or "xception" in line), "its process ended")
        raise RuntimeError(f"Paimon: {reason}")


def _types(case: Case) -> dict[str, str]:
    return {column.name: column.type.name for column in case.table.columns}


def _group_of(name: str) -> str:
    return next((group for group in GROUPS if name in columns_of(group)), "")


def _to_text(path: Path, target: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * REPLACE (epoch_ms({TIME}) AS {TIME}) FROM read_parquet('{path}')) TO '{target}' "
            "(FORMAT csv, DELIMITER '\t', NULLSTR '\\N', HEADER false, QUOTE '')"
        )


def digest(rows: str, columns: Sequence[str] = ALL_COLUMNS) -> dict[str, object]:
    """Returns the number of rows, and a sum of hashes independent of their order and integer types."""
    values = {name: f"{name}" for name in columns} | {TIME: f"epoch_ms({TIME})"}
    with duckdb.connect(config={"threads": THREADS}) as connection:
        (kinds,) = [dict(connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM {rows})").fetchall())]
        wide = [
            f"{values[name]}::BIGINT" if kinds[name] in ("INTEGER", "BIGINT") or name == TIME else values[name]
            for name in columns
        ]
        found = connection.execute(f"SELECT count(*), sum(hash({', '.join(wide)})) FROM {rows}").fetchall()
    return {"rows": found[0][0], "hash": str(found[0][1])}
