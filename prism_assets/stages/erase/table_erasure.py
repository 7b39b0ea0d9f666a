"""What erasures of rows and of records have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import date

from prism_assets.domain.erasures import Erasure, ErasureRule
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.report import ErasureProgress


class TableErasure(ABC):
    """One erasure of one table, by the holder of the lease of the table's erasures.

    `rules` are its own and those of earlier erasures that still rewrite: what is looked through for one is held to be
    for all before it.
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
        """Searches what was not searched, and rewrites what has to be. Repeating it does nothing more."""

    @abstractmethod
    def search_again(self, keys: Collection[str]) -> int:
        """Records of what lies under some keys, and holds what it erases after all, that it is to be searched again.

        Returns how much of that is recorded: the rest nobody needs, and garbage collection deletes it. In one
        transaction.
        """

    def _note(self, reason: str, *, day: date | None = None, transient: bool = False) -> None:
        self.done.problems.append(Problem(table=str(self._table.name), date=day, reason=reason, transient=transient))
