"""One change of a table, as `apply` shows it and carries it out."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

from prism_assets.domain.tables import TableDefinition

NEVER_READ = "no object of the table was ever read"
"""Why a change is allowed that rows would not allow."""


class Change(ABC):
    """One thing that becomes otherwise about a table."""

    @abstractmethod
    def line(self, table: str) -> str | None:
        """What people are told of it, with the name of the table; None if it shares a line with others."""

    @abstractmethod
    def apply_to(self, table: TableDefinition) -> TableDefinition:
        """The definition behind it."""


def with_column(table: TableDefinition, known: str, **changed: Any) -> TableDefinition:
    """The definition with other values for some fields of one column, which is `known` by that name."""
    columns = tuple(dataclasses.replace(item, **changed) if item.name == known else item for item in table.columns)
    return dataclasses.replace(table, columns=columns)
