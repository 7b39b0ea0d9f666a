"""Lets time pass for garbage collection: for the store, for ranges, and for the history of publications."""

from __future__ import annotations

import os
from typing import Any

from prism_assets.stages.gc.report import GcReport, TableGcReport
from prism_assets.stages.gc.run import run_gc
from prism_assets_tests.world import World


def hours_pass(world: World, hours: float, *, of_publications: bool = True) -> None:
    """Makes everything in the lake older: objects, ranges and, with `of_publications`, all publications."""
    for path in (world.root / "buckets" / "lake").rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - hours * 3_600
            os.utime(path, (then, then))
    database_ages(world, hours, of_publications=of_publications)


def database_ages(world: World, hours: float, *, of_publications: bool = True) -> None:
    """Makes ranges and, with `of_publications`, all publications older, and no object."""
    ago = f"interval '{hours * 3_600} seconds'"
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE prism_merge_ranges SET update_time = update_time - {ago}")
        if of_publications:
            connection.exec_driver_sql(f"UPDATE prism_publication_history SET record_time = record_time - {ago}")


def years_pass(world: World) -> None:
    """Moves expiries and ends of merges so far back that their rows leave PostgreSQL for the archive."""
    ago = "interval '400 days'"
    assert world.settings.metadata_days < 400
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE prism_partitions SET expire_time = expire_time - {ago}")
        connection.exec_driver_sql(f"UPDATE prism_publications SET withdraw_time = withdraw_time - {ago}")
        connection.exec_driver_sql(f"UPDATE prism_merge_job_log SET finish_time = finish_time - {ago}")


def delete_staging(world: World, but: int = 0) -> None:
    """Deletes the staging objects, but for so many, the first ones."""
    found = sorted(item.key for item in world.context.stores.list("staging", ""))
    world.context.stores.delete("staging", found[but:])


def gc(world: World, **more: Any) -> GcReport:
    """`prism gc`; fails the test on any error."""
    report = run_gc(world.context, **more)
    assert report.errors == ()
    return report


def deleted(world: World, **more: Any) -> dict[str, int]:
    """How many objects a garbage collection deletes of the one table there is, by reason."""
    (table,) = gc(world, **more).tables
    return counts(table)


def counts(table: TableGcReport) -> dict[str, int]:
    """Objects by reason."""
    return {reason: item.objects for reason, item in table.deleted.items()}


def keys(world: World, part: str = "") -> list[str]:
    """The keys of objects in the lake in folders of tables, in order."""
    found = (item.key for item in world.context.stores.list("lake", ""))
    return sorted(key for key in found if part in key and not key.startswith("prism-"))
