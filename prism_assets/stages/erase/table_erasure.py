"""Shared base of erasures of rows and of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import date

from prism_assets.domain.erasures.rules import Erasure, ErasureRule
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.report import ErasureProgress


class TableErasure(ABC):
    """One erasure of one table, under the lease of the table's erasures.

    `rules` are its own and those of earlier unfinished erasures: a search for one erasure counts for all earlier ones.
    """

    def __init__(
        self,
        context: StageContext,
        table: TableDefinition,
        lease: Lease,
        erasure: Erasure,
        rules: Sequence[ErasureRule],
    ) -> None:
        self._context = context
        self._table = table
        self._lease = lease
        self._erasure = erasure
        self._rules = rules
        self.done = ErasureProgress()

    @abstractmethod
    def run(self) -> ErasureProgress:
        """Searches objects not searched yet, and rewrites those with matches. A repetition changes nothing."""

    @abstractmethod
    def search_again(self, keys: Collection[str]) -> int:
        """Returns objects with matches, given by their keys, to the search. One transaction.

        Returns how many of them are recorded. The others are unused, and garbage collection deletes them.
        """

    def _note(self, reason: str, *, day: date | None = None, transient: bool = False) -> None:
        self.done.problems.append(Problem(table=str(self._table.name), date=day, reason=reason, transient=transient))
