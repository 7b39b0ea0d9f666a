"""Judges spool objects: left over from a flush without a commit, or converted and past their `spool_days`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.files.garbage import SpoolRecord
from prism_assets.domain.files.keys import SpoolKey
from prism_assets.domain.streams.topic import SPOOL_DAYS
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.kafka import spool_objects
from prism_assets.metadata.kafka.spool_objects import RegisteredSpool
from prism_assets.metadata.tables import tables


def load_spooled(
    connection: Connection, table: TableDefinition, bucket: str, named: Mapping[str, SpoolKey], now: datetime
) -> Mapping[SpoolKey, SpoolRecord]:
    """Returns the records of spool objects, by their parsed keys. Locks the rows of the objects."""
    if not named:
        return {}
    found = spool_objects.load(connection, table.table_id, bucket, named)
    are_read = spool_objects.are_read_again(connection, table.table_id)
    days = _spool_days(connection, table, {key: named[key] for key in found}, found)
    orphans = {key: name.first for key, name in named.items() if key not in found}
    passed = spool_objects.find_passed(connection, table.table_id, orphans) if orphans else {}
    return {
        name: SpoolRecord(
            is_registered=True,
            is_over=not are_read and _is_over(found[key], _bounded(table, days[name.cluster, name.topic]), now),
        )
        if key in found
        else SpoolRecord(is_over=passed.get(key, False), is_foreign=key not in passed)
        for key, name in named.items()
    }


def _is_over(known: RegisteredSpool, days: int, now: datetime) -> bool:
    return known.done_time is not None and not known.is_erased_from and known.done_time + timedelta(days=days) <= now


def _bounded(table: TableDefinition, days: int) -> int:
    """Returns the days that an object stays. After `retention_days` all of its rows have expired."""
    if table.retention_days is None:
        return days
    return min(days, table.retention_days + table.future_days + 1)


def _spool_days(
    connection: Connection,
    table: TableDefinition,
    named: Mapping[str, SpoolKey],
    found: Mapping[str, RegisteredSpool],
) -> Mapping[tuple[str, str], int]:
    """Returns the `spool_days` of topics, by cluster and name. A topic that left the table file keeps its last ones."""
    wanted = {(name.cluster, name.topic) for name in named.values()}
    days = _of_definitions([table])
    if wanted <= days.keys():
        return days
    versions = {(table.table_id, item.definition_version) for item in found.values() if item.definition_version}
    earlier = tables.load_versions(connection, versions)
    known = _of_definitions([earlier[key] for key in sorted(earlier)])
    return {**dict.fromkeys(wanted, SPOOL_DAYS), **known, **days}


def _of_definitions(definitions: Collection[TableDefinition]) -> dict[tuple[str, str], int]:
    """The later one of two definitions decides."""
    topics = (stream.topic for table in definitions for stream in table.streams)
    return {(topic.cluster, topic.name): topic.spool_days for topic in topics if topic is not None}
