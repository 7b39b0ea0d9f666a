"""Names in Dagster: asset keys, steps, pools, jobs, partitions and run tags."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import date
from functools import cache
from itertools import count

from dagster import AssetKey, DailyPartitionsDefinition

MAINTENANCE = "prism_maintenance"
GARBAGE_COLLECTION = "prism_gc"
DAILY_JOBS = {MAINTENANCE: "daily maintenance", GARBAGE_COLLECTION: "garbage collection"}
"""Jobs without an asset, and their names for people."""
STAGE_TAG = "prism/stage"
DAY_TAG = "prism/day"
FAILED_TABLES_TAG = "prism/failed_tables"
SENSOR_TAG = "dagster/sensor_name"
PRIORITY_TAG = "dagster/priority"
PARTITION_TAG = "dagster/partition"


class Stage(enum.Enum):
    """A stage with an asset per table. The value is the end of its asset keys.

    Join tables have the stages `records` and `catalog`. Logs have all others, the logs of changes included.
    """

    LIVE = "live"
    MERGED = "merged"
    RECORDS = "records"
    CATALOG = "catalog"
    ICEBERG = "iceberg"

    @property
    def pool(self) -> str:
        """The Dagster pool that limits this stage's runs, so that its backlog leaves room for other stages."""
        return f"prism_{self.value}"

    @property
    def priority(self) -> int:
        """Priority of queued runs: fresh rows first, then records and publications, then merges."""
        return {Stage.LIVE: 2, Stage.RECORDS: 1, Stage.CATALOG: 1, Stage.ICEBERG: 1, Stage.MERGED: 0}[self]


def asset_key(table: str, part: str) -> AssetKey:
    """Returns `prism/<schema>/<table>_<part>`. The table is in the last part, because the UI shows only this part."""
    schema, _, name = table.partition(".")
    return AssetKey(["prism", schema, f"{name}_{part}"])


def table_key(table: str) -> AssetKey:
    """Returns `prism/<schema>.<table>`, the asset that stands for the whole table. The UI shows `<schema>.<table>`.

    With two parts it is never the key of a stage, whatever the names of tables.
    """
    return AssetKey(["prism", table])


def groups_of(tables: Iterable[str]) -> dict[str, str]:
    """Returns the group of each table's assets in the lineage, such as `log_events`. Dagster allows no dot.

    Of names such as `a.b_c` and `a_b.c`, the later one has a further underscore after its schema.
    """
    groups: dict[str, str] = {}
    taken: set[str] = set()
    for table in sorted(tables):
        schema, _, name = table.partition(".")
        candidates = (f"{schema}{'_' * more}{name}" for more in count(1))
        groups[table] = next(group for group in candidates if group not in taken)
        taken.add(groups[table])
    return groups


def topic_key(cluster: str, topic: str) -> AssetKey:
    """Returns `kafka/<cluster>/<topic>`, the key of a topic for all tables that read it."""
    return AssetKey(["kafka", cluster, topic])


def table_of(key: AssetKey) -> str:
    """Returns `schema.table` of an asset key."""
    if len(key.path) == 2:
        return key.path[1]
    return f"{key.path[1]}.{key.path[2].rpartition('_')[0]}"


def part_of(key: AssetKey) -> str:
    """Returns the part of an asset key: `staging`, `live`, `merged`, `records`, `catalog`, `iceberg` or `table`."""
    if len(key.path) == 2:
        return "table"
    return key.path[-1].rpartition("_")[2]


def step_name(stage: Stage, zone: str) -> str:
    """Returns the step of a stage for all tables of a time zone, such as `live_asia_tokyo`."""
    plain = zone.lower().replace("+", "_plus_").replace("-", "_minus_").replace("/", "_")
    return f"{stage.value}_{plain}"


@cache
def daily(first_day: date, zone: str) -> DailyPartitionsDefinition:
    """Returns the days of a time zone up to and including today."""
    return DailyPartitionsDefinition(start_date=first_day.isoformat(), timezone=zone, end_offset=1)


def has_day(days: DailyPartitionsDefinition, day: date) -> bool:
    """Whether a day is a partition. Rows may be older than the first day, or of tomorrow."""
    return days.has_partition_key(day.isoformat())
