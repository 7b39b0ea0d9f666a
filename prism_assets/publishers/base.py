"""What stages ask of a publisher."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from prism_assets.domain.errors import PrismError
from prism_assets.domain.files import PartitionContent
from prism_assets.domain.names import TableName
from prism_assets.domain.partitions import Publication
from prism_assets.domain.tables import TableDefinition


@dataclass(frozen=True)
class NamedObject:
    """An object of a day as a list names it; `content_length` is None where the list does not say it."""

    url: str
    content_length: int | None


class CallObserver(Protocol):
    """Who changes a catalog hears of each call that does: before it, and when its answer is there."""

    def begin(self) -> None:
        """Called right before a call that changes something; raises if it must not be made any more."""
        ...

    def answered(self) -> None:
        """Called when the service has answered, whatever it said, and no try of the call can land any more."""
        ...


class Unobserved:
    """For calls that nobody else makes at the same time."""

    def begin(self) -> None:
        """Does nothing."""

    def answered(self) -> None:
        """Does nothing."""


UNOBSERVED = Unobserved()


class Publisher(Protocol):
    """Shows tables and their partitions to the readers of one catalog. Every call may be repeated.

    A stage says what to show, and records it when it is shown; a publisher never looks into PostgreSQL. A table that
    was renamed is shown under its `former` names, too, wherever its catalog knows tables by their names.
    """

    @property
    def name(self) -> str:
        """What its rows in `prism_publications` and `prism_table_publications` say; `words_of` has it for people."""
        ...

    @property
    def longest_call_seconds(self) -> float:
        """How long after `CallObserver.begin` a call that was never answered may still change something."""
        ...

    def differs(self, table: TableDefinition) -> bool:
        """Whether `define` would change anything; changes nothing itself."""
        ...

    def define(self, table: TableDefinition, observer: CallObserver = UNOBSERVED) -> str | None:
        """Creates or updates database, table and columns; returns `created`, `updated` or None if nothing changed."""
        ...

    def location(self, table: TableDefinition, day: date, publication: Publication) -> str:
        """Where it sends readers of a day once that publication is made."""
        ...

    def list_key(self, table: TableDefinition, day: date, publication: Publication) -> str | None:
        """The object of the lake that names those of a day, if readers need one."""
        ...

    def read_list(self, key: str) -> list[NamedObject]:
        """What such an object names; ObjectMissing if it is not there, InvariantBroken if it is none."""
        ...

    def outdated(self, table: TableDefinition, publications: Mapping[date, Publication]) -> frozenset[date]:
        """The days that it shows otherwise: missing, elsewhere, or with other columns; changes nothing itself."""
        ...

    def publish(
        self, table: TableDefinition, contents: Mapping[date, PartitionContent], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Shows partitions, and looks whether it does: every object that it names was seen with its length before.

        Returns why for each day that is not shown as published; all others are.
        """
        ...

    def remove(self, table: TableDefinition, name: TableName, observer: CallObserver = UNOBSERVED) -> None:
        """Shows a table no more under one of its names: one of before, or any where it is to be shown no more at all.

        What it names stays. Raises where it is still shown.
        """
        ...

    def withdraw(
        self, table: TableDefinition, days: Collection[date], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Shows days no more, and looks whether it does not; returns why for each that is still shown."""
        ...

    def shown_locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Where it sends readers of the given days at present; days without a partition are left out."""
        ...

    def needed_keys(self, table: TableDefinition, days: Collection[date]) -> frozenset[str]:
        """What readers are sent to at present, of the given days at least: keys, and folders of days, ending with `/`.

        Whatever is recorded. Raises an error of the tree where that cannot be told: garbage collection deletes nothing
        of the table then.
        """
        ...
