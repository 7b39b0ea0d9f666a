"""One change of a table, as shown and carried out by `apply`."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

from prism_assets.domain.tables.definition import TableDefinition

NEVER_READ = "no object of the table was ever read"
"""The reason for a change that is refused once a table has been read."""


class Change(ABC):
    """One difference between two definitions of a table."""

    @abstractmethod
    def line(self, table: str) -> str | None:
        """Returns the line for people with the table's name, or None if the change shares another's line."""

    @abstractmethod
    def apply_to(self, table: TableDefinition) -> TableDefinition:
        """Returns the definition after the change."""


def with_column(table: TableDefinition, known: str, **changed: Any) -> TableDefinition:
    """Returns the definition with changed fields of the column `known`."""
    columns = tuple(dataclasses.replace(item, **changed) if item.name == known else item for item in table.columns)
    return dataclasses.replace(table, columns=columns)
