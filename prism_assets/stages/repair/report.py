"""What a repair found and did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from prism_assets.metadata.leases import Holder, in_brackets


@dataclass(frozen=True, kw_only=True)
class IrreparableObject:
    """A small object that is still not sound, and why; with a `key` that ends with `/`, a folder of them.

    `transient` if the same call may succeed later by itself: it tells an outage from what somebody must mend.
    """

    table: str
    date: date
    key: str
    reason: str
    transient: bool


@dataclass(frozen=True, kw_only=True)
class PartitionRepair:
    """What was found in one partition. `skipped` if another repair is at it: its `holder`, unless it just ended.

    `strays` are objects that no batch has committed nor ever will, and that readers see until they are removed.
    """

    table: str
    table_id: int
    date: date
    checked: int = 0
    missing: int = 0
    damaged: int = 0
    repaired: int = 0
    strays: int = 0
    skipped: bool = False
    holder: Holder | None = None

    @property
    def skip_reason(self) -> str:
        """Why a partition was skipped, and who has it."""
        return f"another repair is at it{in_brackets(self.holder)}; it was not looked at"


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What a repair found and did; `partitions` are those where something was wrong, or that were skipped."""

    checked: int
    missing: int
    damaged: int
    repaired: int
    strays: int
    partitions: tuple[PartitionRepair, ...]
    irreparable: tuple[IrreparableObject, ...]
    seconds: float

    @property
    def errors(self) -> tuple[str, ...]:
        """What is still wrong, one sentence an object or a folder, and what was left to another repair."""
        skipped = [item for item in self.partitions if item.skipped]
        return (
            *(f"{item.table} {item.date}: {item.key} {item.reason}" for item in self.irreparable),
            *(f"{item.table} {item.date}: {item.skip_reason}; repeat when that has ended" for item in skipped),
        )
