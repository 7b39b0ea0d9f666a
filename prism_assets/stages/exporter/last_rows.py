"""The last conversion with rows of each table, for alerts on stale tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.metadata.intake import intake_figures


class LastRows:
    """Keeps the answers of earlier looks.

    A look reads the last thousand conversions of a table. If none has rows, the time of the first is an upper bound,
    and this bound moves on with each conversion. Without earlier answers such a table would never be stale.
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
