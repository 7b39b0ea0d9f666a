"""The right answers: from prism's own reader of Glue, or for an older snapshot, from its files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from prism_assets.domain.errors import WrongUse
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.reading.lake_reader import LakeReader, open_filesystem, path_of
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings
from prism_local.readers.answers import Asked, Rows, rows_of
from prism_local.readers.questions import AskedTable, Nested, Question, sql_of_duckdb

_ADDED = {"api_log": "region"}
_NESTED = {
    "orders": Nested(
        leaf=("customer", "plan", "code"),
        number=("customer", "id"),
        below=100,
        list="items",
        element="sku",
        amount="quantity",
    )
}


@dataclass(frozen=True)
class Truth:
    """The current tables, and the right answer to each question about them."""

    tables: tuple[AskedTable, ...]
    right: Mapping[Asked, Rows]


def read_truth(settings: Settings, keys: Mapping[str, str], questions: Collection[Question] = tuple(Question)) -> Truth:
    """Reads the demo's tables by name and id column. Raises WrongUse without tables in a PostgreSQL catalog."""
    if settings.iceberg_catalog != "sql" or not settings.s3_endpoint:
        raise WrongUse("readers are compared on the local stack alone: run `prism local up` and play the demo")
    glue = LakeReader(settings)
    tables, right = [], {}
    with IcebergReader(settings) as iceberg:
        for name, key in keys.items():
            found = iceberg.table(f"log.{name}")
            table = _load_table(glue, found, name, key)
            tables.append(table)
            for question in table.questions:
                if question in questions:
                    right[name, question] = _right(settings, glue, found, table, question)
    return Truth(tuple(tables), right)


def is_unchanged(settings: Settings, tables: Collection[AskedTable]) -> bool:
    """Whether the catalog still names the metadata files given to the readers."""
    with IcebergReader(settings) as iceberg:
        return all(iceberg.table(f"log.{table.name}").metadata_location == table.metadata_location for table in tables)


def _load_table(glue: LakeReader, found: Table, name: str, key: str) -> AskedTable:
    shown = glue.table(f"log.{name}")
    added, columns = _ADDED.get(name), {column for column, _ in shown.columns}
    oldest = min(found.snapshots(), key=lambda item: item.sequence_number or 0, default=None)
    head = found.current_snapshot()
    if not shown.partitions or oldest is None or head is None:
        raise WrongUse(f"log.{name} has no rows: play the demo first, with `prism local demo`")
    return AskedTable(
        name=name,
        key=key,
        identifier=".".join(found.name()),
        metadata_location=found.metadata_location,
        day=min(partition.date for partition in shown.partitions),
        added_column=added if added in columns else None,
        snapshot_id=oldest.snapshot_id if oldest.snapshot_id != head.snapshot_id else None,
        nested=_NESTED.get(name),
    )


def _right(settings: Settings, glue: LakeReader, found: Table, table: AskedTable, question: Question) -> Rows:
    sql = sql_of_duckdb(table, question, f"log.{table.name}")
    if question is not Question.SNAPSHOT:
        return rows_of(run_query(glue, sql).rows)
    return rows_of(run_query(_SnapshotReader(settings, found, table), sql).rows)


class _SnapshotReader:
    """Reads ids directly from all files of one snapshot, without an Iceberg reader that could filter rows."""

    def __init__(self, settings: Settings, found: Table, table: AskedTable) -> None:
        self._filesystem = open_filesystem(settings)
        self._key = table.key
        self._urls = [task.file.file_path for task in found.scan(snapshot_id=table.snapshot_id).plan_files()]

    def rows(self, name: str) -> pa.Table:
        """Returns the ids of all rows."""
        return pa.concat_tables(
            pq.read_table(path_of(url), columns=[self._key], filesystem=self._filesystem, partitioning=None)
            for url in self._urls
        )
