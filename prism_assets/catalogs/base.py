"""What stages ask of a catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from typing import Protocol

from prism_assets.domain.errors import PrismError
from prism_assets.domain.tables import TableDefinition


class Calls(Protocol):
    """Who changes a catalog hears of each call that does: before it, and when its answer is there."""

    def begin(self) -> None:
        """Called right before a call that changes something; raises if it must not be made any more."""
        ...

    def answered(self) -> None:
        """Called when the service has answered, whatever it said, and no try of the call can land any more."""
        ...


class Unwatched:
    """Calls that nobody else makes at the same time."""

    def begin(self) -> None:
        """Nothing stands against it."""

    def answered(self) -> None:
        """Nobody asks."""


UNWATCHED = Unwatched()


class Catalog(Protocol):
    """Databases, tables and partitions as readers see them. Every call may be repeated."""

    @property
    def longest_call_seconds(self) -> float:
        """How long after `Calls.begin` a call that was never answered may still change something."""
        ...

    def differs(self, table: TableDefinition, location: str) -> bool:
        """Whether `define` would change anything; changes nothing itself."""
        ...

    def define(self, table: TableDefinition, location: str, calls: Calls = UNWATCHED) -> str | None:
        """Creates or updates database, table and columns; returns `created`, `updated` or None if nothing changed."""
        ...

    def outdated(self, table: TableDefinition, locations: Mapping[date, str]) -> frozenset[date]:
        """The days that `publish` would change: missing, elsewhere, or with other columns; changes nothing itself."""
        ...

    def publish(
        self, table: TableDefinition, locations: Mapping[date, str], calls: Calls = UNWATCHED
    ) -> dict[date, PrismError]:
        """Points partitions at locations and reads them back.

        Returns why for each day that the catalog does not show as published; all others are.
        """
        ...

    def locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Where the partitions of the given days are; days without a partition are left out."""
        ...
