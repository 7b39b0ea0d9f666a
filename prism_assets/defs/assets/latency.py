"""Seconds from arrival to readable, as metadata of the days changed by a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import date
from typing import Any

from prism_assets.domain.days.latency import summarize
from prism_assets.metadata.intake.arrivals import Arrival, ShownObjects, arrivals_of_batches, arrivals_shown
from prism_assets.stages.catalog.publications import PublishedPartition
from prism_assets.stages.catalog.report import CatalogReport, TableReport
from prism_assets.stages.context import StageContext

Latencies = dict[tuple[int, date], dict[str, Any]]


def latency_of_batches(context: StageContext, table_ids: Iterable[int], batch_ids: Collection[int]) -> Latencies:
    """Returns the latency of rows readable right after their batch, by table and day."""
    if not batch_ids:
        return {}
    with context.database.begin() as connection:
        return _by_day(arrivals_of_batches(connection, list(table_ids), batch_ids))


def latency_of_publication(context: StageContext, done: CatalogReport) -> Latencies:
    """Returns the latency of rows first shown by a catalog run, by table and day."""
    shown = [item for table in done.tables for item in _newly_shown(table)]
    if not shown:
        return {}
    with context.database.begin() as connection:
        return _by_day(arrivals_shown(connection, shown))


def _newly_shown(table: TableReport) -> Iterator[ShownObjects]:
    for item in table.published:
        lower, delayed_only = _shown_before(item)
        upper = None if item.after.is_live_prefix else item.after.published_object_id
        if item.before != item.after:
            yield ShownObjects(
                table_id=table.table_id, date=item.date, lower=lower, upper=upper, delayed_only=delayed_only
            )


def _shown_before(item: PublishedPartition) -> tuple[int, bool]:
    """Returns the last object readers had, and whether only delayed objects were missing.

    Readers list the live prefix, so under it they have all but delayed objects.
    """
    if item.before is None:
        return 0, False
    return (0, True) if item.before.is_live_prefix else (item.before.published_object_id, False)


def _by_day(arrivals: Iterable[Arrival]) -> Latencies:
    found: dict[tuple[int, date], list[tuple[int, float]]] = {}
    for item in arrivals:
        found.setdefault((item.table_id, item.date), []).append((item.rows, item.seconds))
    return {key: _facts(pairs) for key, pairs in found.items()}


def _facts(pairs: list[tuple[int, float]]) -> dict[str, Any]:
    latencies = summarize(pairs)
    if latencies is None:
        return {}
    return {
        "seconds from arrival to readable, median": round(latencies.median, 2),
        "seconds from arrival to readable, longest": round(latencies.longest, 2),
    }
