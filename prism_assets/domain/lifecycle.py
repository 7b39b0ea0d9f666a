"""What the next catalog run does to a partition, or what the partition waits for: decided here alone, as data.

The stage carries these steps out, `prism catalog --dry-run` prints them, the sensor `catalog_work` asks for runs by
them, and `prism status` and the checks say from them what is waited for. Candidates are found by SQL, which may find
too many and never too few (`partitions.load_pending`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Protocol

from prism_assets.domain.partitions import (
    Partition,
    PartitionState,
    Publication,
    SwitchEvidence,
    contradiction,
    current_publication,
    switch_obstacle,
    wanted_publication,
)
from prism_assets.domain.words import counted


class Facts(Protocol):
    """What decides besides the row of the partition. A fact is asked for only where a step hangs on it."""

    def closes_from(self, partition: Partition) -> datetime:
        """From when on the partition may be closed, in UTC: when its day is over, or before, where its table flips."""
        ...

    def unfinished_objects(self, partition: Partition) -> int:
        """Staging objects that are not converted, and that a batch up to the closing mark, or any so far, saw first."""
        ...

    def unmerged_live(self, partition: Partition) -> int | None:
        """Live objects above the merged ranges. None where nobody wants to know how many."""
        ...

    def expires(self, partition: Partition) -> datetime | None:
        """When the day is older than its table keeps rows, in UTC; None where it keeps all."""
        ...

    def not_ahead(self, now: datetime) -> datetime:
        """The time by which days expire: `now`, but not ahead of the database's clock."""
        ...

    def unfinished_before_expiry(self, partition: Partition) -> int:
        """Staging objects that are not converted and that a batch saw before rows of the day became too old."""
        ...

    def unfolded_objects(self, partition: Partition) -> int:
        """Objects that folds still read: changes that none has taken, records that may change; 0 for other tables."""
        ...

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        """Sums over all objects and ranges of the partition: not cheap."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Step:
    """`follows` where only the steps before it in the same run bring it about."""

    follows: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark(_Step):
    """Notes up to which batch objects may still become live objects of the day."""

    action: ClassVar[str] = "close"

    def __str__(self) -> str:
        return "mark for closing, and close as soon as no earlier staging object is unfinished"


@dataclass(frozen=True, kw_only=True)
class Close(_Step):
    """From now on rows of the day come as delayed objects."""

    action: ClassVar[str] = "close"

    def __str__(self) -> str:
        return "close"


@dataclass(frozen=True, kw_only=True)
class Switch(_Step):
    """Sends readers to the merged objects, from the next publication on; `evidence` is what its certificate holds."""

    action: ClassVar[str] = "switch"
    evidence: SwitchEvidence | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return "switch readers to the merged objects"


@dataclass(frozen=True, kw_only=True)
class Publish(_Step):
    """Has the catalog show what it should."""

    action: ClassVar[str] = "publish"
    before: Publication | None
    wanted: Publication

    def __str__(self) -> str:
        if self.before is None:
            return "publish for the first time"
        return "publish" if self.before != self.wanted else "publish again what is recorded"


@dataclass(frozen=True, kw_only=True)
class Expire(_Step):
    """Ends the day: nobody is sent to it any more, and what it holds may be deleted when its readers are done."""

    action: ClassVar[str] = "expire"

    def __str__(self) -> str:
        return "expire, as it is older than retention_days"


@dataclass(frozen=True, kw_only=True)
class Withdraw(_Step):
    """Takes an expired day out of the catalog."""

    action: ClassVar[str] = "withdraw"

    def __str__(self) -> str:
        return "take it out of the catalog"


@dataclass(frozen=True, kw_only=True)
class WaitForDayEnd(_Step):
    """The day is not over."""

    ends: datetime


@dataclass(frozen=True, kw_only=True)
class WaitForObjects(_Step):
    """The day may not close: so many staging objects may still become live objects of it."""

    undone: ClassVar[str] = "closed"
    objects: int

    @property
    def reason(self) -> str:
        """Why, as part of a sentence."""
        what = "that batches claimed before its mark"
        one, many = f"staging object {what} is", f"staging objects {what} are"
        return f"{counted(self.objects, one, many)} not converted yet"

    def __str__(self) -> str:
        return f"not close: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class WaitForMerge(_Step):
    """Readers may not be switched. `is_contradiction` if no merge can put that right."""

    undone: ClassVar[str] = "switched"
    reason: str
    is_contradiction: bool = False

    def __str__(self) -> str:
        return f"not switch: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class WaitToExpire(_Step):
    """The day is too old, and may not expire yet."""

    undone: ClassVar[str] = "expired"
    reason: str

    def __str__(self) -> str:
        return f"not expire: {self.reason}"


Move = Mark | Close | Switch | Publish | Expire | Withdraw
Wait = WaitForDayEnd | WaitForObjects | WaitForMerge | WaitToExpire
Step = Move | Wait


def next_steps(partition: Partition, facts: Facts, now: datetime) -> tuple[Step, ...]:
    """What one catalog run at `now` does to a partition, in order; what it waits for is among them.

    Switching comes before closing, so a run that closes a day never switches it; and a day that is too old is closed,
    merged and switched first, so that none expires with rows that nobody has counted.
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
        if may_mark(partition, facts.closes_from(partition), now):
            steps.append(Mark())
        if left := facts.unfinished_objects(partition):
            steps.append(WaitForObjects(objects=left, follows=not partition.is_marked))
        else:
            steps.append(Close(follows=not partition.is_marked))
            after = replace(partition, last_live_object_id=partition.last_object_id)
    elif partition.is_open:
        steps.append(WaitForDayEnd(ends=facts.closes_from(partition)))
    if publication := publication_due(after):
        steps.append(replace(publication, follows=publication_due(partition) is None))
    return tuple(steps)


def may_switch(partition: Partition) -> bool:
    """Whether switching is what comes next, if only everything is merged: not where there is nothing to merge yet."""
    return partition.state is PartitionState.CLOSED and not partition.has_nothing_to_show


def may_expire(partition: Partition, expires: datetime | None, now: datetime) -> bool:
    """Whether expiring is what comes next, if only nothing more can come to the day."""
    return partition.state is PartitionState.SWITCHED and expires is not None and expires <= now


def may_close(partition: Partition, closes_from: datetime, now: datetime) -> bool:
    """Whether closing is what comes next, if only everything is converted."""
    return partition.is_open and closes_from <= now


def may_mark(partition: Partition, closes_from: datetime, now: datetime) -> bool:
    """Whether its closing mark is to be set: with all others of the table, in one transaction under the epoch lock."""
    return may_close(partition, closes_from, now) and not partition.is_marked


def publication_due(partition: Partition) -> Publish | None:
    """The publication that is due as the partition stands, or None where the catalog shows what it should.

    An expired day is taken out of the catalog instead, and one that has nothing to show does not come into it.
    """
    if partition.expired or partition.has_nothing_to_show:
        return None
    before, wanted = current_publication(partition), wanted_publication(partition)
    return None if before == wanted else Publish(before=before, wanted=wanted)


def catalog_due(partition: Partition) -> Publish | Withdraw | None:
    """What a catalog is behind with, as the partition stands there, or None."""
    if partition.expired:
        return Withdraw() if partition.is_published else None
    return publication_due(partition)


def work_for_a_run(steps: tuple[Step, ...]) -> Move | None:
    """The first thing that a run now would do, or None if all that is left is to wait. What is due goes first."""
    moves = [step for step in steps if isinstance(step, Move)]
    due = [step for step in moves if isinstance(step, Publish) and not step.follows]
    return next(iter([*due, *moves]), None)


def _is_too_old(partition: Partition, facts: Facts, now: datetime) -> bool:
    """By the database's clock, too, which is asked for only where it decides."""
    expires = facts.expires(partition)
    return may_expire(partition, expires, now) and may_expire(partition, expires, facts.not_ahead(now))


def _expire_or_wait(partition: Partition, facts: Facts) -> Expire | WaitToExpire:
    """Everything is merged first: then no merge, no repair and no count has to know of expired days."""
    if partition.desired_version < partition.last_object_id:
        return WaitToExpire(reason="objects that came late are not merged yet")
    if left := facts.unfinished_before_expiry(partition):
        one, many = "staging object that may have rows of it is", "staging objects that may have rows of it are"
        return WaitToExpire(reason=f"{counted(left, one, many)} not converted yet")
    if left := facts.unfolded_objects(partition):
        return WaitToExpire(reason=f"{counted(left, 'object of it is', 'objects of it are')} still read by folds")
    return Expire()


def _switch_or_wait(partition: Partition, facts: Facts) -> Switch | WaitForMerge:
    """Sums up the evidence only where the bounds allow a switch."""
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
