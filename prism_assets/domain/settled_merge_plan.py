"""Plans the merge of the settled records of one day: which of their objects become which, and what waits and why.

A pure function of what PostgreSQL says, like the plan of a log's merge, whose cuts it uses. Open objects are not its
business: folds write those anew.

How often a row is written by merges: once, and a second time where more small objects than one job takes
(`max_objects`) had to be joined before they filled an object, at the end of the day. What has reached the floor, half
of the target, is never written again. Only records that settle after the day was over, as those of objects that could
not be read till then, are joined with what is below the floor, of which a day then has one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism_assets.domain.folding import RecordObject
from prism_assets.domain.merge_plan import even_cuts, full_cuts
from prism_assets.domain.table_options import MergePolicy

KEPT_FOR_LAST = "the day is open, and what is left is kept for its last records"
"""Why objects of a day wait in which records may still come or change."""


@dataclass(frozen=True, kw_only=True)
class SettledMergePlan:
    """Each of the `groups` becomes one object; the objects `kept` stay as they are, and no merge looks at them again.

    With `completes` nothing of the day is left to be merged, and what is written is even, whatever its size. With
    `backlog` another merge follows at once.
    """

    groups: tuple[tuple[RecordObject, ...], ...] = ()
    kept: tuple[RecordObject, ...] = ()
    left_behind: int = 0
    left_behind_bytes: int = 0
    completes: bool = False
    backlog: bool = False
    reason: str = "nothing has settled that is not merged"

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return bool(self.groups or self.kept)

    def is_final(self, content_length: int, policy: MergePolicy) -> bool:
        """Whether no merge begins with an object that this one wrote: it is big enough, or all that is left of its day.

        It is recorded as `is_merged`; what is kept always is.
        """
        return self.completes or content_length >= policy.floor_bytes


def may_be_due(policy: MergePolicy, *, is_over: bool, objects: int, content_length: int, shrinkage: float) -> bool:
    """Whether a day with so much that is not even may have something to merge: asked before its objects are read."""
    return is_over or objects >= policy.max_objects or content_length * shrinkage >= policy.floor_bytes


def plan_settled_merge(
    *, policy: MergePolicy, is_over: bool, shown: Sequence[RecordObject], shrinkage: float, most_bytes: int
) -> SettledMergePlan:
    """Plans one merge of one day, of all its objects that readers see; those that may still change are left alone, and
    so are those that could not be read.

    As long as records of the day may come, or change, only full objects are cut, and half a target is held back; then
    everything is merged, in even parts. `shrinkage` is merged bytes per small byte. The merge ends behind the group
    with which it has read `most_bytes`, and the rest follows in the next one.
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
    return SettledMergePlan(
        groups=groups,
        kept=tuple(kept),
        left_behind=left,
        left_behind_bytes=sum(item.content_length for item in waiting if item.object_id not in taken),
        completes=whole,
        backlog=bool(groups) and (more or bounded),
        reason=_reason(left, bool(waiting), more=more or bounded),
    )


def _place(item: RecordObject) -> tuple[object, ...]:
    """Objects of neighbouring times become one, so that readers of some hours need not open all of a day."""
    return item.min_time is not None, item.min_time, item.object_id


def _parts(
    inputs: Sequence[RecordObject], policy: MergePolicy, shrinkage: float, *, whole: bool, more: bool
) -> list[tuple[RecordObject, ...]]:
    """The inputs as they are cut; what is behind the last cut waits."""
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
    """The first parts, and whether that are not all."""
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
    return "everything is merged" if waiting else "nothing has settled that is not merged"
