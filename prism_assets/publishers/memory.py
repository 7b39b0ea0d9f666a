"""A publisher that keeps its publications in memory, for tests without a catalog server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.errors import ObjectMissing, PrismError
from prism_assets.domain.files.data_file import PartitionContent
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.publishers.base import UNOBSERVED, CallObserver, NamedObject


@dataclass
class MemoryPublisher:
    """The readers' view: definition and contents of each table. Stands in for the publisher of its name."""

    name: str = "glue"
    longest_call_seconds: float = 0.0
    definitions: dict[TableName, TableDefinition] = field(default_factory=dict)
    contents: dict[TableName, dict[date, PartitionContent]] = field(default_factory=dict)

    def differs(self, table: TableDefinition) -> bool:
        """Whether the table is shown with another definition or not at all."""
        return self.definitions.get(table.name) != table

    def differing(self, tables: Sequence[TableDefinition]) -> frozenset[int]:
        """Compares one table after the other."""
        return frozenset(table.table_id for table in tables if self.differs(table))

    def define(self, table: TableDefinition, observer: CallObserver = UNOBSERVED) -> str | None:
        """Stores the definition."""
        if not self.differs(table):
            return None
        exists = table.name in self.definitions
        observer.begin()
        self.definitions[table.name] = table
        observer.answered()
        return "updated" if exists else "created"

    def location(self, table: TableDefinition, day: date, publication: Publication) -> str:
        """Returns a unique name for a publication."""
        version, last, revision = publication.version, publication.published_object_id, publication.revision
        return f"memory://{table.name}/{day}/{version}-{last}-{revision}"

    def list_key(self, table: TableDefinition, day: date, publication: Publication) -> str | None:
        """Returns None, because nothing is written to the lake."""
        return None

    def read_list(self, key: str) -> list[NamedObject]:
        """Raises ObjectMissing, because no list exists."""
        raise ObjectMissing(f"{key} is in no lake: nothing is written there")

    def outdated(self, table: TableDefinition, publications: Mapping[date, Publication]) -> frozenset[date]:
        """Returns the days with another publication."""
        shown = self.contents.get(table.name, {})
        return frozenset(
            day
            for day, publication in publications.items()
            if day not in shown or shown[day].publication != publication
        )

    def publish(
        self,
        table: TableDefinition,
        contents: Mapping[date, PartitionContent],
        observer: CallObserver = UNOBSERVED,
        recorded: Collection[date] | None = None,
    ) -> dict[date, PrismError]:
        """Stores the contents."""
        observer.begin()
        self.contents.setdefault(table.name, {}).update(contents)
        observer.answered()
        return {}

    def remove(self, table: TableDefinition, name: TableName, observer: CallObserver = UNOBSERVED) -> None:
        """Does nothing: former names are never shown."""

    def withdraw(
        self, table: TableDefinition, days: Collection[date], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Forgets the contents of the days."""
        observer.begin()
        for day in days:
            self.contents.get(table.name, {}).pop(day, None)
        observer.answered()
        return {}

    def shown_locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Returns the names of the stored publications."""
        shown = self.contents.get(table.name, {})
        return {day: self.location(table, day, shown[day].publication) for day in days if day in shown}

    def needed_keys(self, table: TableDefinition, days: Collection[date]) -> frozenset[str]:
        """Returns the keys of the stored objects."""
        shown = self.contents.get(table.name, {})
        return frozenset(file.key for day in days if day in shown for file in shown[day].files)
