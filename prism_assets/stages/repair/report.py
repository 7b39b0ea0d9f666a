"""Results of a repair."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from prism_assets.metadata.leases import Holder, in_brackets


@dataclass(frozen=True, kw_only=True)
class IrreparableObject:
    """A small object that is still damaged, or a folder of them: then `key` ends with `/`."""

    table: str
    date: date
    key: str
    reason: str
    transient: bool
    """The same call may succeed later by itself, as after an outage."""


@dataclass(frozen=True, kw_only=True)
class PartitionRepair:
    """The result for one partition."""

    table: str
    table_id: int
    date: date
    checked: int = 0
    missing: int = 0
    damaged: int = 0
    repaired: int = 0
    rewritten: int = 0
    """Repaired objects with a new key, as of closed days. The next catalog run shows them."""
    strays: int = 0
    """Objects never committed by a batch. Readers see them until their removal."""
    skipped: bool = False
    """Another repair has the partition."""
    holder: Holder | None = None
    """The other repair, or None if it has just ended."""

    @property
    def skip_reason(self) -> str:
        """Why the partition was skipped, with the holder."""
        return f"another repair is working on it{in_brackets(self.holder)}; it was not looked at"


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """The result of a repair."""

    checked: int
    missing: int
    damaged: int
    repaired: int
    strays: int
    partitions: tuple[PartitionRepair, ...]
    """Partitions with a fault, and skipped ones."""
    irreparable: tuple[IrreparableObject, ...]
    seconds: float

    @property
    def errors(self) -> tuple[str, ...]:
        """Remaining faults, one sentence per object or folder, and partitions left to another repair."""
        skipped = [item for item in self.partitions if item.skipped]
        return (
            *(f"{item.table} {item.date}: {item.key} {item.reason}" for item in self.irreparable),
            *(f"{item.table} {item.date}: {item.skip_reason}; repeat when that has ended" for item in skipped),
        )
