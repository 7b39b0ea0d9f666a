"""Names that Dagster knows things by: asset keys, steps, pools, jobs, partitions and run tags."""

from __future__ import annotations

import enum
from datetime import date
from functools import cache

from dagster import AssetKey, DailyPartitionsDefinition

MAINTENANCE = "prism_maintenance"
GARBAGE_COLLECTION = "prism_gc"
DAILY_JOBS = {MAINTENANCE: "daily maintenance", GARBAGE_COLLECTION: "garbage collection"}
"""Jobs that work for no asset, and what people call them."""
STAGE_TAG = "prism/stage"
DAY_TAG = "prism/day"
FAILED_TABLES_TAG = "prism/failed_tables"
REBUILD_TAG = "prism/rebuild"
"""Given to a run or backfill of `live` by hand, it has the days asked for made again: see `Rebuilding`."""
SENSOR_TAG = "dagster/sensor_name"
PRIORITY_TAG = "dagster/priority"
PARTITION_TAG = "dagster/partition"


class Rebuilding(enum.Enum):
    """What the tag of a run may say: whether staging objects that are gone stop a rebuild, or are gone on without."""

    YES = "yes"
    WITHOUT_MISSING = "without-missing"


class Stage(enum.Enum):
    """A stage that has an asset per table that it is for. The value is what its keys end with.

    The records of a join table are folded of the changes that its log holds, and then published; every other table is a
    log, which has no records.
    """

    LIVE = "live"
    MERGED = "merged"
    RECORDS = "records"
    CATALOG = "catalog"
    ICEBERG = "iceberg"

    @property
    def pool(self) -> str:
        """The pool that bounds the runs of this stage, so that a backlog of one leaves room for the others."""
        return f"prism_{self.value}"

    @property
    def priority(self) -> int:
        """Which queued run goes first: fresh rows, then records and publications, then merging."""
        return {Stage.LIVE: 2, Stage.RECORDS: 1, Stage.CATALOG: 1, Stage.ICEBERG: 1, Stage.MERGED: 0}[self]


def asset_key(table: str, part: str) -> AssetKey:
    """`prism/<schema>/<table>_<part>` of `schema.table`: the UI shows the last part of a key alone."""
    schema, _, name = table.partition(".")
    return AssetKey(["prism", schema, f"{name}_{part}"])


def table_of(key: AssetKey) -> str:
    """`schema.table` of a key that `asset_key` made."""
    return f"{key.path[1]}.{key.path[2].rpartition('_')[0]}"


def part_of(key: AssetKey) -> str:
    """`staging`, `live`, `merged`, `records`, `catalog` or `iceberg` of a key that `asset_key` made."""
    return key.path[-1].rpartition("_")[2]


def step_name(stage: Stage, zone: str) -> str:
    """The step that does a stage for all tables of a time zone, such as `live_asia_tokyo`."""
    plain = zone.lower().replace("+", "_plus_").replace("-", "_minus_").replace("/", "_")
    return f"{stage.value}_{plain}"


@cache
def daily(first_day: date, zone: str) -> DailyPartitionsDefinition:
    """The days of a time zone up to and including today."""
    return DailyPartitionsDefinition(start_date=first_day.isoformat(), timezone=zone, end_offset=1)


def has_day(days: DailyPartitionsDefinition, day: date) -> bool:
    """Whether a day is among the partitions: rows may be older than the first day, or of tomorrow."""
    return days.has_partition_key(day.isoformat())
