"""The last conversion with rows of each table, as alerts on stale tables need it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.metadata.intake import intake_figures


class LastRows:
    """Keeps the answers of earlier looks.

    A look reads a thousand conversions of a table. Without rows in all of them, the first is an upper bound, which
    moves on with each conversion. A table whose objects have no rows would never be stale.
    """

    def __init__(self) -> None:
        self._known: dict[int, datetime] = {}

    def look(self, connection: Connection, table_ids: Collection[int]) -> Mapping[int, datetime]:
        """Returns the times, by table. Tables without a conversion are left out."""
        found = intake_figures.last_rows(connection, table_ids)
        self._known = {
            item.table_id: min(item.time, self._known.get(item.table_id, item.time)) if item.is_older else item.time
            for item in found
        }
        return self._known
