"""Plans the merge of one day's settled records: groups of objects to merge, and objects to wait for, with the reason.

A pure function of PostgreSQL's rows, sharing its cuts with the merge plan of logs. It ignores open objects, because
folds rewrite those.

Merges write a row once. A row is written twice only if, before the end of the day, more small objects than one job
takes (`max_objects`) had to be joined before they filled an object. Objects above the floor, half of the target, are
never rewritten. Only records settling after the end of the day, for example from unreadable objects, are joined with
objects below the floor; a day then has one such object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism_assets.domain.merges.plan import even_cuts, full_cuts
from prism_assets.domain.records.folding import RecordObject
from prism_assets.domain.tables.options import MergePolicy

KEPT_FOR_LAST = "the day is open, and the rest is kept for its last records"
"""Why objects of a day wait while its records may still arrive or change."""


@dataclass(frozen=True, kw_only=True)
class RecordMergePlan:
    """One merge of one day."""

    groups: tuple[tuple[RecordObject, ...], ...] = ()
    """Each group becomes one object."""
    kept: tuple[RecordObject, ...] = ()
    """Objects that stay and are marked as merged."""
    left_behind: int = 0
    left_behind_bytes: int = 0
    completes: bool = False
    """Nothing of the day is left to merge, so the output is final at any size."""
    backlog: bool = False
    """Another merge follows at once."""
    reason: str = "all settled records are merged"

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.groups or self.kept)

    def is_final(self, content_length: int, policy: MergePolicy) -> bool:
        """Whether no later merge takes an object of this size: it is big enough, or the last of its day.

        It is recorded as `is_merged`. Kept objects always are.
        """
        return self.completes or content_length >= policy.floor_bytes


def may_be_due(policy: MergePolicy, *, is_over: bool, objects: int, content_length: int, shrinkage: float) -> bool:
    """Whether a day with these totals of unmerged objects may have something to merge. Asked before loading objects."""
    return is_over or objects >= policy.max_objects or content_length * shrinkage >= policy.floor_bytes


def plan_record_merge(
    *, policy: MergePolicy, is_over: bool, shown: Sequence[RecordObject], shrinkage: float, most_bytes: int
) -> RecordMergePlan:
    """Plans one merge of one day from the objects readers see. Skips objects that may change or could not be read.

    While records of the day may arrive or change, it cuts only full objects and keeps half a target. Afterwards it
    merges everything in even parts. `shrinkage` is merged bytes per small byte. The merge stops after the group that
    reaches `most_bytes`; the next merge takes the rest.
    """
    settled = [item for item in shown if item.is_settled and item.fault is None]
    waiting = sorted((item for item in settled if not item.is_merged), key=_place)
    kept = [item for item in waiting if item.content_length >= policy.floor_bytes]
    small = [item for item in waiting if item.content_length < policy.floor_bytes]
    first = [item for item in small if not item.merges]
    more = len(first) > policy.max_objects
    whole = is_over and not more
    if whole:
        rests = [item for item in settled if item.is_merged and item.content_length < policy.floor_bytes]
        inputs = sorted([*rests, *small], key=_place) if small else []
    else:
        inputs = first[: policy.max_objects]
    parts = _parts(inputs, policy, shrinkage, whole=whole, more=more)
    groups, bounded = _bounded([part for part in parts if len(part) > 1], most_bytes)
    kept += [part[0] for part in parts if len(part) == 1 and not part[0].is_merged]
    left = len(waiting) - len(kept) - sum(not item.is_merged for group in groups for item in group)
    taken = {item.object_id for group in (*groups, kept) for item in group}
    return RecordMergePlan(
        groups=groups,
        kept=tuple(kept),
        left_behind=left,
        left_behind_bytes=sum(item.content_length for item in waiting if item.object_id not in taken),
        completes=whole,
        backlog=bool(groups) and (more or bounded),
        reason=_reason(left, bool(waiting), more=more or bounded),
    )


def _place(item: RecordObject) -> tuple[object, ...]:
    """Sorts by time, so that readers of some hours need not open all objects of a day."""
    return item.min_time is not None, item.min_time, item.object_id


def _parts(
    inputs: Sequence[RecordObject], policy: MergePolicy, shrinkage: float, *, whole: bool, more: bool
) -> list[tuple[RecordObject, ...]]:
    """Cuts the inputs into parts. Inputs after the last cut wait."""
    if not inputs:
        return []
    sizes = [item.content_length * shrinkage for item in inputs]
    if whole:
        cuts = even_cuts(sizes, 0.0, policy)
    else:
        cuts = full_cuts(sizes, 0.0, policy, keep=0.0 if more else float(policy.floor_bytes))
        cuts = cuts or ([len(inputs)] if len(inputs) >= policy.max_objects else [])
    return [tuple(inputs[start:end]) for start, end in zip([0, *cuts], cuts, strict=False)]


def _bounded(
    parts: Sequence[tuple[RecordObject, ...]], most_bytes: int
) -> tuple[tuple[tuple[RecordObject, ...], ...], bool]:
    """Returns the first parts within the limit, and whether more follow."""
    size = 0
    for count, part in enumerate(parts, 1):
        size += sum(item.content_length for item in part)
        if size >= most_bytes:
            return tuple(parts[:count]), count < len(parts)
    return tuple(parts), False


def _reason(left: int, waiting: bool, *, more: bool) -> str:
    if more:
        return "the merge has its share of objects; the rest follows in the next one"
    if left:
        return KEPT_FOR_LAST
    return "everything is merged" if waiting else "all settled records are merged"
