"""Plans a merge: the ranges to write, the range to extend, and the objects left behind, with the reason.

A pure function of PostgreSQL's rows. Execution, `prism merge --dry-run`, run metadata and tests share the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism_assets.domain.files.data_file import DataFile, MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Input, RangePlace, Replacement, RewriteKind
from prism_assets.domain.tables.options import MergePolicy

REWRITES = 8
"""Most ranges of a day that one job rewrites or copies."""
REWRITTEN_DAYS = 4
"""Most days of a table on which one run rewrites or copies ranges."""
DEFAULT_SHRINKAGE = 0.8
"""Bytes of merged output per byte of small objects, for partitions without any range to measure."""


@dataclass(frozen=True, kw_only=True)
class PlannedRange:
    """One range to write.

    With `extends` and `objects`, the range is extended: its object is the first input, and its upper bound moves. With
    `extends` alone, it is rewritten with the current names and types of columns.
    """

    lower_bound: int
    upper_bound: int
    extends: MergedRange | None
    objects: tuple[SmallObject, ...]
    is_copy: bool = False
    """The range stays, and a copy with the wanted types is written."""

    @property
    def is_rewritten(self) -> bool:
        """Whether the new object replaces the old one with the same rows."""
        return not self.objects and not self.is_copy

    @property
    def inputs(self) -> tuple[DataFile, ...]:
        """The objects to read, first the one of the extended range."""
        return (*((self.extends,) if self.extends else ()), *self.objects)

    def replacement(self, file: MergedRange) -> Replacement:
        """Returns the replacement of the range's object by the written one; a new place if there was none."""
        return Replacement(
            place=RangePlace(self.lower_bound),
            replaces=Input.of(self.extends) if self.extends else None,
            file=file,
            inputs=tuple(map(Input.of, (*((self.extends,) if self.extends else ()), *self.objects))),
        )

    @property
    def input_bytes(self) -> int:
        """Bytes to read."""
        return sum(file.content_length for file in self.inputs)

    @property
    def row_count(self) -> int:
        """Rows to write."""
        return sum(file.row_count for file in self.inputs)


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """The plan of one job: consecutive ranges, then copies, and the objects left behind."""

    chain_end: int
    ranges: tuple[PlannedRange, ...]
    left_behind: int
    left_behind_bytes: int
    reason: str
    backlog: bool

    @property
    def kind(self) -> RewriteKind:
        """The kind of its rewrite."""
        if all(planned.is_copy for planned in self.ranges):
            return RewriteKind.WIDEN
        return RewriteKind.RENAME if all(planned.is_rewritten for planned in self.ranges) else RewriteKind.MERGE


def plan_merge(
    *,
    policy: MergePolicy,
    is_open: bool,
    chain: Sequence[MergedRange],
    unmerged: Sequence[SmallObject],
    more: bool,
    shrinkage: float = DEFAULT_SHRINKAGE,
    rewritten_below: int = 0,
    uncopied: Sequence[MergedRange] = (),
    attempts: int = 0,
) -> MergePlan:
    """Plans one job of one partition.

    - `chain`: the ranges in order, without the sentinel.
    - `unmerged`: the small objects above the last upper bound by ascending id, at most `policy.max_objects`. `more`
      says that there are further ones.
    - `shrinkage`: merged bytes per small byte.

    While the partition is open, only full ranges are cut, and half a target is held back. The rest is then enough for
    an object of its own at the close, and nothing is written twice. After the close everything is merged, in even
    parts.

    A closed day without unmerged objects gets its ranges rewritten if they were written under definitions before
    version `rewritten_below`, where columns have other names or types. Ranges in `uncopied` are copied after the merged
    ones, on open days, too, unless an attempt failed. After failed `attempts` ranges take turns one by one, so that an
    unreadable one does not block the others.
    """
    end = chain[-1].upper_bound if chain else 0
    if not unmerged:
        old = [] if is_open else [item for item in chain if item.definition_version < rewritten_below]
        anew = old or uncopied
        return _rewrites([anew[attempts % len(anew)]] if anew and attempts else anew, end, is_copy=not old)
    tail = chain[-1] if chain and chain[-1].content_length < policy.floor_bytes else None
    sizes = [item.content_length * shrinkage for item in unmerged]
    cuts = _cuts(sizes, float(tail.content_length) if tail else 0.0, policy, is_open=is_open, more=more)
    ranges = _ranges(cuts, unmerged, tail, end)
    stays = [item for item in uncopied if not (ranges and tail and item.upper_bound == tail.upper_bound)]
    copies = () if attempts else _anew(stays, is_copy=True)
    left = unmerged[cuts[-1] :] if cuts else unmerged
    return MergePlan(
        chain_end=end,
        ranges=(*ranges, *copies),
        left_behind=len(left),
        left_behind_bytes=sum(item.content_length for item in left),
        reason=_reason(len(left), more=more),
        backlog=more and bool(ranges),
    )


def _rewrites(anew: Sequence[MergedRange], end: int, *, is_copy: bool) -> MergePlan:
    """Plans some of these ranges.

    The others follow when the next run finds the day, so that no merge waits for them.
    """
    ranges = _anew(anew, is_copy=is_copy)
    told = (
        "objects are copied with wider types" if is_copy else "objects from before a rename or widening are rewritten"
    )
    reason = told if anew else "nothing is unmerged"
    return MergePlan(chain_end=end, ranges=ranges, left_behind=0, left_behind_bytes=0, reason=reason, backlog=False)


def _anew(ranges: Sequence[MergedRange], *, is_copy: bool) -> tuple[PlannedRange, ...]:
    """Returns rewrites or copies of as many ranges as one job writes."""
    return tuple(
        PlannedRange(
            lower_bound=item.lower_bound,
            upper_bound=item.upper_bound,
            extends=item,
            objects=(),
            is_copy=is_copy,
        )
        for item in ranges[:REWRITES]
    )


def _cuts(sizes: Sequence[float], start: float, policy: MergePolicy, *, is_open: bool, more: bool) -> list[int]:
    """Returns the indexes to cut after. A full job always cuts, so that the next one continues."""
    if is_open or more:
        cuts = full_cuts(sizes, start, policy, keep=0.0 if more else float(policy.floor_bytes))
    else:
        cuts = even_cuts(sizes, start, policy)
    if not cuts and (more or len(sizes) >= policy.max_objects):
        return [len(sizes)]
    return cuts


def full_cuts(sizes: Sequence[float], start: float, policy: MergePolicy, keep: float) -> list[int]:
    """Returns the indexes to cut after, so that every part reaches the target and at least `keep` bytes remain."""
    left = start + sum(sizes)
    part, cuts = start, list[int]()
    for index, size in enumerate(sizes):
        part += size
        if part >= policy.target_bytes and (left - part >= keep or part >= 2 * policy.target_bytes):
            cuts.append(index + 1)
            left -= part
            part = 0.0
    return cuts


def even_cuts(sizes: Sequence[float], start: float, policy: MergePolicy) -> list[int]:
    """Returns the indexes to cut after, into parts as even as the objects allow, none below the floor."""
    total = start + sum(sizes)
    parts = max(1, round(total / policy.target_bytes))
    share, reached, begun, cuts = total / parts, start, 0.0, list[int]()
    for index, size in enumerate(sizes):
        goal = share * (len(cuts) + 1)
        enough = min(reached - begun, total - reached) >= policy.floor_bytes
        # Cut before this object if the sum is then nearer to the goal than after it.
        if index and len(cuts) < parts - 1 and enough and reached + size / 2 > goal:
            cuts.append(index)
            begun = reached
        reached += size
    return [*cuts, len(sizes)]


def _ranges(
    cuts: Sequence[int], unmerged: Sequence[SmallObject], tail: MergedRange | None, end: int
) -> tuple[PlannedRange, ...]:
    ranges, start = list[PlannedRange](), 0
    lower = tail.lower_bound if tail else end
    for cut in cuts:
        objects = tuple(unmerged[start:cut])
        upper = objects[-1].object_id
        ranges.append(
            PlannedRange(lower_bound=lower, upper_bound=upper, extends=None if ranges else tail, objects=objects)
        )
        start, lower = cut, upper
    return tuple(ranges)


def _reason(left: int, *, more: bool) -> str:
    """Returns why objects are left behind. On a closed day none are, unless the job is full."""
    if more:
        return "the job has its share of objects; the rest follows in the next one"
    return "the day is open, and what is left is kept for its last objects" if left else "everything is merged"
