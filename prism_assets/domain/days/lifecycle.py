"""Decides the next catalog run's steps for a partition, or what the partition waits for, as data.

The stage carries out these steps, `prism catalog --dry-run` prints them, the sensor `catalog_work` requests runs by
them, and `prism status` and the checks show them. SQL finds candidates, possibly too many but never too few
(`partitions.load_pending`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Protocol

from prism_assets.domain.days.partitions import (
    Partition,
    PartitionState,
    Publication,
    SwitchEvidence,
    contradiction,
    current_publication,
    switch_obstacle,
    wanted_publication,
)
from prism_assets.domain.text import counted


class Facts(Protocol):
    """Facts beside the partition's row. Each is loaded only if a step depends on it."""

    def closes_from(self, partition: Partition) -> datetime:
        """Returns from when the partition may be closed, in UTC: the end of its day, or any time during a flip of its
        table, or where an erasure asks for it.
        """
        ...

    def unfinished_objects(self, partition: Partition) -> int:
        """Returns staging objects not converted that a batch up to the closing mark saw first, or any batch so far."""
        ...

    def unfinished_history(self, partition: Partition) -> int | None:
        """Returns unconverted objects of `prism history` with the day, or the next one, in their keys.

        0 if those of the next day are not registered yet; None if the day waits for none.
        """
        ...

    def unmerged_live(self, partition: Partition) -> int | None:
        """Returns live objects above the merged ranges, or None if the count is not needed."""
        ...

    def expires(self, partition: Partition) -> datetime | None:
        """Returns when the day becomes older than its table's retention, in UTC, or None without retention."""
        ...

    def not_ahead(self, now: datetime) -> datetime:
        """Returns the time for expiry: `now`, but never ahead of the database's clock."""
        ...

    def unfinished_before_expiry(self, partition: Partition) -> int:
        """Returns staging objects not converted that a batch saw before rows of the day became too old."""
        ...

    def unfolded_objects(self, partition: Partition) -> int:
        """Returns objects folds still read: unfolded changes, or records that may change. 0 for other tables."""
        ...

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        """Returns sums over all objects and ranges of the partition. Expensive."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Step:
    """`follows`: earlier steps of the same run make this one possible."""

    follows: bool = False


@dataclass(frozen=True, kw_only=True)
class MarkClosing(_Step):
    """Records up to which batch objects may still become live objects of the day."""

    action: ClassVar[str] = "close"

    def __str__(self) -> str:
        return "mark for closing, and close as soon as no earlier staging object is unfinished"


@dataclass(frozen=True, kw_only=True)
class Close(_Step):
    """From now on new rows of the day become delayed objects."""

    action: ClassVar[str] = "close"

    def __str__(self) -> str:
        return "close"


@dataclass(frozen=True, kw_only=True)
class Switch(_Step):
    """Points readers to the merged objects from the next publication on. `evidence` is for its certificate."""

    action: ClassVar[str] = "switch"
    evidence: SwitchEvidence | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return "switch readers to the merged objects"


@dataclass(frozen=True, kw_only=True)
class Publish(_Step):
    """Updates the catalog."""

    action: ClassVar[str] = "publish"
    before: Publication | None
    wanted: Publication

    def __str__(self) -> str:
        if self.before is None:
            return "publish for the first time"
        return "publish" if self.before != self.wanted else "publish again what is recorded"


@dataclass(frozen=True, kw_only=True)
class Expire(_Step):
    """Ends the day: readers no longer find it, and its objects may be deleted after the lease."""

    action: ClassVar[str] = "expire"

    def __str__(self) -> str:
        return "expire, as it is older than retention_days"


@dataclass(frozen=True, kw_only=True)
class Withdraw(_Step):
    """Removes an expired day from the catalog."""

    action: ClassVar[str] = "withdraw"

    def __str__(self) -> str:
        return "take it out of the catalog"


@dataclass(frozen=True, kw_only=True)
class WaitForDayEnd(_Step):
    """The day is not over."""

    ends: datetime


@dataclass(frozen=True, kw_only=True)
class WaitForObjects(_Step):
    """The day may not close: `objects` staging objects may still become live objects of it."""

    undone: ClassVar[str] = "closed"
    objects: int

    @property
    def reason(self) -> str:
        """The reason as part of a sentence."""
        what = "that batches claimed before its mark"
        one, many = f"staging object {what} is", f"staging objects {what} are"
        return f"{counted(self.objects, one, many)} not converted yet"

    def __str__(self) -> str:
        return f"not close: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class WaitForHistory(_Step):
    """The day is not marked: objects of its history would become delayed objects after the mark."""

    undone: ClassVar[str] = "closed"
    objects: int
    """Without objects, those of the next day are not registered yet."""

    @property
    def reason(self) -> str:
        """The reason as part of a sentence."""
        if not self.objects:
            return "its history goes on with the next day, which `prism history` has not brought in yet"
        return f"{counted(self.objects, 'object of its history is', 'objects of its history are')} not converted yet"

    def __str__(self) -> str:
        return f"not close: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class WaitForMerge(_Step):
    """Readers may not be switched. `is_contradiction`: no merge can resolve it."""

    undone: ClassVar[str] = "switched"
    reason: str
    is_contradiction: bool = False

    def __str__(self) -> str:
        return f"not switch: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class WaitToExpire(_Step):
    """The day is too old but may not expire yet."""

    undone: ClassVar[str] = "expired"
    reason: str

    def __str__(self) -> str:
        return f"not expire: {self.reason}"


Transition = MarkClosing | Close | Switch | Publish | Expire | Withdraw
Wait = WaitForDayEnd | WaitForHistory | WaitForObjects | WaitForMerge | WaitToExpire
Step = Transition | Wait


def next_steps(partition: Partition, facts: Facts, now: datetime) -> tuple[Step, ...]:
    """Returns a partition's steps in one catalog run at `now`, in order, including waits.

    Switching precedes closing, so a run that closes a day never switches it. A day that is too old is first closed,
    merged and switched, so that no rows expire uncounted.
    """
    if partition.expired:
        return tuple(filter(None, [catalog_due(partition)]))
    steps: list[Step] = []
    after = partition
    if _is_too_old(partition, facts, now):
        end = _expire_or_wait(partition, facts)
        if isinstance(end, Expire):
            return (end, Withdraw(follows=True)) if partition.is_published else (end,)
        steps.append(end)
    if may_switch(partition):
        steps.append(step := _switch_or_wait(partition, facts))
        if isinstance(step, Switch):
            after = replace(partition, switched=True)
    elif may_close(partition, facts.closes_from(partition), now):
        steps += _closing_steps(partition, facts)
        if isinstance(steps[-1], Close):
            after = replace(partition, last_live_object_id=partition.last_object_id)
    elif partition.is_open:
        steps.append(WaitForDayEnd(ends=facts.closes_from(partition)))
    if publication := publication_due(after):
        steps.append(replace(publication, follows=publication_due(partition) is None))
    return tuple(steps)


def may_switch(partition: Partition) -> bool:
    """Whether the next step is to switch once everything is merged. False for a partition without content."""
    return partition.state is PartitionState.CLOSED and not partition.has_nothing_to_show


def may_expire(partition: Partition, expires: datetime | None, now: datetime) -> bool:
    """Whether the next step is to expire once nothing more can arrive."""
    return partition.state is PartitionState.SWITCHED and expires is not None and expires <= now


def may_close(partition: Partition, closes_from: datetime, now: datetime) -> bool:
    """Whether the next step is to close once everything is converted."""
    return partition.is_open and closes_from <= now


def may_mark(partition: Partition, closes_from: datetime, now: datetime) -> bool:
    """Whether to set the closing mark. All marks of a table are set in one transaction under the epoch lock."""
    return may_close(partition, closes_from, now) and not partition.is_marked


def publication_due(partition: Partition) -> Publish | None:
    """Returns the due publication, or None if the catalog is up to date.

    Expired days are withdrawn instead, and days without content are never published.
    """
    if partition.expired or partition.has_nothing_to_show:
        return None
    before, wanted = current_publication(partition), wanted_publication(partition)
    return None if before == wanted else Publish(before=before, wanted=wanted)


def catalog_due(partition: Partition) -> Publish | Withdraw | None:
    """Returns the catalog's next step for the partition, or None."""
    if partition.expired:
        return Withdraw() if partition.is_published else None
    return publication_due(partition)


def work_for_a_run(steps: tuple[Step, ...]) -> Transition | None:
    """Returns the first move a run would make now, or None if only waits are left. Due publications come first."""
    transitions = [step for step in steps if isinstance(step, Transition)]
    due = [step for step in transitions if isinstance(step, Publish) and not step.follows]
    return next(iter([*due, *transitions]), None)


def _is_too_old(partition: Partition, facts: Facts, now: datetime) -> bool:
    """Checks the database's clock, too, but only if it matters."""
    expires = facts.expires(partition)
    return may_expire(partition, expires, now) and may_expire(partition, expires, facts.not_ahead(now))


def _closing_steps(partition: Partition, facts: Facts) -> Sequence[Step]:
    """Returns the steps of a day that is over. Without a mark, the objects of its history come first."""
    if partition.is_marked:
        marks: list[Step] = []
    elif (left := facts.unfinished_history(partition)) is not None:
        return [WaitForHistory(objects=left)]
    else:
        marks = [MarkClosing()]
    if left := facts.unfinished_objects(partition):
        return [*marks, WaitForObjects(objects=left, follows=bool(marks))]
    return [*marks, Close(follows=bool(marks))]


def _expire_or_wait(partition: Partition, facts: Facts) -> Expire | WaitToExpire:
    """Waits until everything is merged, so that merges, repairs and counts need not handle expired days."""
    if partition.desired_version < partition.last_object_id:
        return WaitToExpire(reason="objects that came late are not merged yet")
    if left := facts.unfinished_before_expiry(partition):
        one, many = "staging object that may have rows of it is", "staging objects that may have rows of it are"
        return WaitToExpire(reason=f"{counted(left, one, many)} not converted yet")
    if left := facts.unfolded_objects(partition):
        return WaitToExpire(reason=f"{counted(left, 'object of it is', 'objects of it are')} still read by folds")
    return Expire()


def _switch_or_wait(partition: Partition, facts: Facts) -> Switch | WaitForMerge:
    """Computes the evidence only if the bounds allow a switch."""
    if not partition.desired_version:
        return WaitForMerge(reason="it was never merged")
    if partition.desired_version < (partition.last_live_object_id or 0):
        left = facts.unmerged_live(partition)
        some = "some live objects are" if left is None else counted(left, "live object is", "live objects are")
        return WaitForMerge(reason=f"{some} not merged yet")
    evidence = facts.switch_evidence(partition)
    if (obstacle := switch_obstacle(partition, evidence)) is None:
        return Switch(evidence=evidence)
    return WaitForMerge(reason=obstacle, is_contradiction=contradiction(evidence) is not None)
