"""Metadata of materialisations: the current content of a partition. The UI plots names that begin with `dagster/`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from prism_assets.metadata.days.partition_figures import DayFigures, day_figures
from prism_assets.stages.context import StageContext


def table_ids(context: StageContext, names: Collection[str]) -> dict[int, str]:
    """Returns `schema.table` by id. Raises WrongUse for a table missing from the database."""
    return {table.table_id: str(table.name) for table in context.choose_tables(names)}


def read_figures(
    context: StageContext, ids: Mapping[int, str], wanted: Collection[tuple[int, date]]
) -> dict[tuple[str, date], dict[str, Any]]:
    """Returns the content of partitions by table and day. Missing partitions have no content."""
    with context.database.begin() as connection:
        found = day_figures(connection, set(wanted))
    return {(ids[table], day): _facts(found.get((table, day))) for table, day in wanted}


def _facts(figures: DayFigures | None) -> dict[str, Any]:
    if figures is None:
        return {"dagster/partition_row_count": 0}
    return {
        "dagster/partition_row_count": figures.rows,
        "small objects": figures.small_objects,
        "small bytes": figures.small_bytes,
        "smallest small object": figures.smallest_bytes,
        "median small object": figures.median_bytes,
        "merged objects": figures.merged_objects,
        "merged bytes": figures.merged_bytes,
        "smallest merged object": figures.smallest_merged_bytes,
        "median merged object": figures.median_merged_bytes,
    }


def with_own_day(ids: Mapping[int, str], day: date, touched: Collection[tuple[int, date]]) -> set[tuple[int, date]]:
    """Returns the touched partitions and those of the requested day."""
    return {*touched, *((table_id, day) for table_id in ids)}
