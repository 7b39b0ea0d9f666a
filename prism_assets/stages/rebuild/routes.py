"""Finds objects that a rebuild or replay divides otherwise than the other tables of their prefix did.

All tables of a prefix read an object by the routes and the format of one time. If these have changed since, and one
table read the object again by the current ones, a line could be in two tables, or in none. A rebuild of all of them
moves such lines.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.intake import claims
from prism_assets.metadata.rewrites import rebuild_sources
from prism_assets.metadata.rewrites.rebuild_sources import Arrival, DayToRebuild
from prism_assets.stages.stream.source_tasks import SourceTasks

OBSTACLE = (
    "some of its objects were divided by earlier routes or another format of their prefix, and by the current ones a "
    "line could be in two tables, or in none: rebuild the day in all tables of the prefix"
)


def divided_otherwise(connection: Connection, table: TableDefinition, read: Collection[tuple[int, int]]) -> set[int]:
    """Returns the objects whose lines the current definition divides otherwise than the one they were read under.

    `read` are ids of staging objects, each with the version of a definition. Reads without locks.
    """
    items = claims.load_claimed(connection, {number for number, _ in read})
    versions = {number: {table.version} for number in items}
    for number, version in read:
        versions[number].add(version)
    sources = SourceTasks.load(connection, items.values(), versions)
    return {number for number, version in read if not sources.divides_alike(items[number], version, table.version)}


def is_divided_otherwise(connection: Connection, table: TableDefinition, day: DayToRebuild, arrival: Arrival) -> bool:
    """Whether a rebuild of a day would read such an object. Reads without locks."""
    read = rebuild_sources.find_readings(connection, day, table.version, arrival)
    return bool(divided_otherwise(connection, table, read))
