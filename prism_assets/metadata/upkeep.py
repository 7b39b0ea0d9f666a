"""Upkeep of the tables themselves: what autovacuum also does, once a day for sure and at a quiet hour."""

from __future__ import annotations

from sqlalchemy import text

from prism_assets.metadata.database import Database


def refresh_statistics(database: Database) -> None:
    """Vacuums small tables of many updates and analyses the others. Takes no lock that reading or writing waits for.

    A table that something else has locked is left out. Rows of prism_stream_batches are not deleted: staging objects
    refer to them, and marks of closing are their highest id.
    """
    with database.outside_transactions() as connection:
        connection.execute(text(_VACUUM_CHURNED))
        connection.execute(text(_ANALYZE_GROWING))


# Small tables whose rows are updated all the time.
_VACUUM_CHURNED = """
VACUUM (ANALYZE, SKIP_LOCKED) prism_merge_jobs, prism_partitions, prism_publications, prism_stream_batches,
    prism_stream_scans, prism_tables
"""
# Tables that mostly grow; their statistics tell the planner to use the partial indexes.
_ANALYZE_GROWING = """
ANALYZE (SKIP_LOCKED) prism_merge_ranges, prism_quarantine, prism_small_objects, prism_staging_objects
"""
