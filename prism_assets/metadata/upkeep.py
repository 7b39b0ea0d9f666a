"""Maintenance of the tables: the work of autovacuum, once a day and at a quiet hour."""

from __future__ import annotations

from sqlalchemy import text

from prism_assets.metadata.database import Database


def refresh_statistics(database: Database) -> None:
    """Vacuums small tables with many updates and analyses the others. Takes no lock that delays readers or writers.

    Skips tables locked by others. Rows of prism_stream_batches are never deleted: staging objects refer to them, and
    the marks of closing are their highest id.
    """
    with database.outside_transactions() as connection:
        connection.execute(text(_VACUUM_CHURNED))
        connection.execute(text(_ANALYZE_GROWING))


# Small tables with constant updates.
_VACUUM_CHURNED = """
VACUUM (ANALYZE, SKIP_LOCKED) prism_merge_jobs, prism_partitions, prism_publications, prism_staged_files,
    prism_stream_batches, prism_stream_scans, prism_tables, prism_topic_partitions
"""
# Tables that mostly grow. With current statistics the planner chooses the partial indexes.
_ANALYZE_GROWING = """
ANALYZE (SKIP_LOCKED) prism_merge_ranges, prism_offset_ranges, prism_quarantine, prism_small_objects, prism_staging_objects
"""
