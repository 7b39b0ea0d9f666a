"""The interface between stages and a publisher."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.errors import PrismError
from prism_assets.domain.files.data_file import PartitionContent
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition


@dataclass(frozen=True)
class NamedObject:
    """An object of a day, named in an object list. `content_length` is None if the list has no lengths."""

    url: str
    content_length: int | None


class CallObserver(Protocol):
    """Learns of every call that changes a catalog: before the call, and after its answer."""

    def begin(self) -> None:
        """Called right before a changing call. Raises if the call must not be made any more."""
        ...

    def answered(self) -> None:
        """Called after the service has answered, with any result, once no retry of the call can still land."""
        ...


class Unobserved:
    """For calls without concurrent callers."""

    def begin(self) -> None:
        """Does nothing."""

    def answered(self) -> None:
        """Does nothing."""


UNOBSERVED = Unobserved()


class Publisher(Protocol):
    """Shows tables and their partitions to the readers of one catalog. Every call may be repeated.

    A stage decides what to show and records it afterwards. A publisher never reads PostgreSQL. If its catalog
    identifies tables by name, it also shows a renamed table under its `former` names.
    """

    @property
    def name(self) -> str:
        """The publisher's name in `prism_publications` and `prism_table_publications`. `words_of` renders it for
        people.
        """
        ...

    @property
    def longest_call_seconds(self) -> float:
        """How long after `CallObserver.begin` an unanswered call may still change the catalog."""
        ...

    def differs(self, table: TableDefinition) -> bool:
        """Whether `define` would change the catalog. Changes nothing."""
        ...

    def differing(self, tables: Sequence[TableDefinition]) -> frozenset[int]:
        """Returns the ids of the tables that `define` would change. Many tables take few calls. Changes nothing."""
        ...

    def define(self, table: TableDefinition, observer: CallObserver = UNOBSERVED) -> str | None:
        """Creates or updates database, table and columns. Returns `created`, `updated`, or None without a change."""
        ...

    def location(self, table: TableDefinition, day: date, publication: Publication) -> str:
        """Returns the location that the catalog gives to readers of a day under a publication."""
        ...

    def list_key(self, table: TableDefinition, day: date, publication: Publication) -> str | None:
        """Returns the key of the list of a day's objects, or None if readers need no list."""
        ...

    def read_list(self, key: str) -> list[NamedObject]:
        """Reads a list of objects. Raises ObjectMissing if it is missing, InvariantBroken if its body is no list."""
        ...

    def outdated(self, table: TableDefinition, publications: Mapping[date, Publication]) -> frozenset[date]:
        """Returns the days whose partition is missing or has another location or other columns. Changes nothing."""
        ...

    def publish(
        self,
        table: TableDefinition,
        contents: Mapping[date, PartitionContent],
        observer: CallObserver = UNOBSERVED,
        recorded: Collection[date] | None = None,
    ) -> dict[date, PrismError]:
        """Shows partitions and reads them back. First checks the length of every object in them.

        `recorded` are the days that the catalog has by the record; None if the record may be wrong. A wrong record
        costs more calls, and changes no result.

        Returns an error for each day that is not shown as published. All other days are.
        """
        ...

    def remove(self, table: TableDefinition, name: TableName, observer: CallObserver = UNOBSERVED) -> None:
        """Stops showing a table under one name: a former name, or any name of a dropped table.

        Deletes no object. Raises an error if the catalog still shows the table.
        """
        ...

    def withdraw(
        self, table: TableDefinition, days: Collection[date], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Stops showing days and reads back. Returns an error for each day still shown."""
        ...

    def shown_locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Returns the current locations of the given days. Omits days without a partition."""
        ...

    def needed_keys(self, table: TableDefinition, days: Collection[date]) -> frozenset[str]:
        """Returns the keys that readers currently need, at least for the given days. Keys of day folders end with `/`.

        Asks the catalog and ignores PostgreSQL's records. Raises an error of the tree if the catalog does not answer;
        garbage collection then deletes nothing of the table.
        """
        ...
