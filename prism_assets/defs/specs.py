"""Describes the assets of one table: keys, lineage, partitions, owner, columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from dagster import AssetKey, AssetSpec, FreshnessPolicy, TableColumn, TableColumnConstraints, TableSchema

from prism_assets.defs.keys import STAGE_TAG, Stage, asset_key, daily, table_key, topic_key
from prism_assets.domain.columns.column import Column
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.tables.definition import TableDefinition

_UPSTREAM = {
    Stage.LIVE: ("staging",),
    Stage.MERGED: ("live",),
    Stage.RECORDS: (),
    Stage.CATALOG: ("live", "merged"),
    Stage.ICEBERG: ("live", "merged"),
}
_OF_RECORDS = ("records",)
_KINDS = {
    Stage.LIVE: {"spark", "parquet"},
    Stage.MERGED: {"spark", "parquet"},
    Stage.RECORDS: {"spark", "parquet"},
    Stage.CATALOG: {"glue"},
    Stage.ICEBERG: {"iceberg"},
}
_ABOUT = {
    Stage.LIVE: "small Parquet objects, one per staging object and day; readable as soon as they are written",
    Stage.MERGED: "big, even objects, sorted by time, merged from the small ones",
    Stage.RECORDS: "one row per record, folded from the changes in its log",
    Stage.CATALOG: "the readers' view: the live prefix while the day is open, then one manifest",
    Stage.ICEBERG: "the same objects as an Iceberg table: a snapshot for each commit, of all days at once",
}


def topic_specs(tables: Iterable[TableDefinition]) -> Iterator[AssetSpec]:
    """Yields an asset for each topic of Kafka, outside Dagster's control. Several tables may read one."""
    readers: dict[str, list[TableDefinition]] = {}
    topics = {}
    for table in tables:
        for stream in table.streams:
            if stream.topic is not None:
                topics[stream.url] = stream.topic
                readers.setdefault(stream.url, []).append(table)
    for url, topic in sorted(topics.items()):
        names = sorted({str(table.name) for table in readers[url]})
        yield AssetSpec(
            topic_key(topic.cluster, topic.name),
            group_name="kafka",
            description=f"The topic {topic.name} of the cluster {topic.cluster}, read by {', '.join(names)}.",
            kinds={"kafka"},
            tags={STAGE_TAG: "topic"},
            metadata={"dagster/uri": url, "cluster": topic.cluster, "topic": topic.name, "tables": names},
        )


def staging_spec(table: TableDefinition) -> AssetSpec:
    """Returns the staging asset: objects that services or the spool of a topic write, outside Dagster's control."""
    topics = [stream.topic for stream in table.streams if stream.topic is not None]
    only_topics = len(topics) == len(table.streams) > 0
    what = "messages of Kafka, as the worker spools them" if only_topics else "JSON objects as services write them"
    return AssetSpec(
        asset_key(str(table.name), "staging"),
        deps=[topic_key(topic.cluster, topic.name) for topic in topics],
        description=_describe(table, what),
        kinds={"s3", "parquet"} if only_topics else {"s3", "json"},
        owners=_owners(table),
        tags={STAGE_TAG: "staging"},
        metadata={"dagster/column_schema": _schema(table), "streams": [stream.url for stream in table.streams]},
    )


def table_spec(table: TableDefinition) -> AssetSpec:
    """Returns the asset of the whole table, without days. The sensor `table_health` reports its health."""
    name = str(table.name)
    ends = [Stage.CATALOG, *([Stage.ICEBERG] if table.iceberg else [])]
    return AssetSpec(
        table_key(name),
        deps=[asset_key(name, stage.value) for stage in ends],
        description=_describe(table, "the whole table, with its health: days, rows, checks, and what waits"),
        kinds={"table"},
        owners=_owners(table),
        tags={STAGE_TAG: "table"},
        metadata=_facts(table),
    )


def stage_specs(stage: Stage, tables: tuple[TableDefinition, ...], first_day: date) -> Iterator[AssetSpec]:
    """Yields the assets of one stage for tables of one time zone. All are skippable, so a run makes only what it
    selects.
    """
    for table in tables:
        name = str(table.name)
        yield AssetSpec(
            asset_key(name, stage.value),
            deps=_upstream(stage, table),
            skippable=True,
            partitions_def=daily(first_day, table.timezone),
            description=_describe(table, _ABOUT[stage]),
            kinds=_KINDS[stage],
            owners=_owners(table),
            tags={STAGE_TAG: stage.value},
            metadata=_facts(table),
            freshness_policy=_freshness(table) if stage is Stage.LIVE else None,
        )


def _upstream(stage: Stage, table: TableDefinition) -> list[AssetKey]:
    name = str(table.name)
    if table.join is None:
        return [asset_key(name, part) for part in _UPSTREAM[stage]]
    if stage is Stage.RECORDS:
        return [asset_key(str(log_name(table.name)), Stage.LIVE.value)]
    return [asset_key(name, part) for part in _OF_RECORDS]


def _describe(table: TableDefinition, what: str) -> str:
    return f"{table.description or table.name}: {what}."


def _owners(table: TableDefinition) -> list[str]:
    return [table.owner] if table.owner else []


def _schema(table: TableDefinition) -> TableSchema:
    return TableSchema([_column(column) for column in table.columns])


def _facts(table: TableDefinition) -> dict[str, Any]:
    return {
        "dagster/column_schema": _schema(table),
        "event date": f"{table.partition_column}, {table.timezone}",
        "merge interval": table.merge.interval,
        "target bytes": table.merge.target_bytes,
    }


def _freshness(table: TableDefinition) -> FreshnessPolicy | None:
    """Returns the freshness policy. It counts from the latest arrival of rows, of any day."""
    if table.freshness is None:
        return None
    return FreshnessPolicy.time_window(fail_window=table.freshness.fail, warn_window=table.freshness.warn)


def _column(column: Column) -> TableColumn:
    source = f"from {column.source}" if column.source != column.name else None
    value = f"computed as {column.value}" if column.value is not None else None
    description = "; ".join(filter(None, [column.description, source, value])) or None
    constraints = TableColumnConstraints(nullable=not column.required)
    return TableColumn(column.name, column.glue_type, description=description, constraints=constraints)
