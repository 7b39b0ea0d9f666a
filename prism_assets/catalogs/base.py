"""What stages ask of a catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from typing import Protocol

from prism_assets.domain.tables import TableDefinition


class Catalog(Protocol):
    """Databases, tables and partitions as readers see them. Every call may be repeated."""

    def differs(self, table: TableDefinition, location: str) -> bool:
        """Whether `define` would change anything; changes nothing itself."""
        ...

    def define(self, table: TableDefinition, location: str) -> str | None:
        """Creates or updates database, table and columns; returns `created`, `updated` or None if nothing changed."""
        ...

    def publish(self, table: TableDefinition, locations: Mapping[date, str]) -> None:
        """Points partitions at locations and reads them back; raises if the catalog shows anything else after."""
        ...

    def locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Where the partitions of the given days are; days without a partition are left out."""
        ...
