"""Plans a merge: which ranges to write, which range to extend, and what stays behind and why.

A pure function of what PostgreSQL says. The plan is executed, shown by `prism merge --dry-run`, attached to runs
and tested, all from the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism_assets.domain.files.data_file import DataFile, MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Input, RangePlace, Replacement, RewriteKind
from prism_assets.domain.tables.options import MergePolicy

REWRITES = 8
"""Ranges of a day that one job rewrites or copies at most."""
REWRITTEN_DAYS = 4
"""Days of a table whose ranges one run rewrites or copies, some of each."""
DEFAULT_SHRINKAGE = 0.8
"""Bytes of merged output per byte of small objects before a partition has ranges of its own to measure."""


@dataclass(frozen=True, kw_only=True)
class PlannedRange:
    """One range to write. With `extends`, that range's object is the first input, and its row moves its upper bound.

    Without any other object it is rewritten, with the names and types that its columns have by now. One that is
    `is_copy` stays as it is; what is written has the types that its columns are to have.
    """

    lower_bound: int
    upper_bound: int
    extends: MergedRange | None
    objects: tuple[SmallObject, ...]
    is_copy: bool = False

    @property
    def is_rewritten(self) -> bool:
        """Whether its object takes the place of that of before, with the same rows."""
        return not self.objects and not self.is_copy

    @property
    def inputs(self) -> tuple[DataFile, ...]:
        """The objects to read, the one of the extended range first."""
        return (*((self.extends,) if self.extends else ()), *self.objects)

    def replacement(self, file: MergedRange) -> Replacement:
        """The written object in the place of the one that the range had, which is a new place without one."""
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
    """Ranges in order, each beginning where the one before ends, those that are copied behind them, and what waits."""

    chain_end: int
    ranges: tuple[PlannedRange, ...]
    left_behind: int
    left_behind_bytes: int
    reason: str
    backlog: bool

    @property
    def kind(self) -> RewriteKind:
        """What the rewrite is that carries it out."""
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

    `chain` holds the ranges in order without the sentinel, `unmerged` the small objects above the last upper bound
    by ascending id, at most `policy.max_objects`; `more` says that there are further ones. `shrinkage` is merged bytes
    per small byte. While the partition is open only full ranges are cut, and half a target is held back, so that what
    is left at the close is enough for an object of its own and nothing is written twice. After the close everything
    is merged, in even parts. When nothing is left to merge of a closed day, ranges are rewritten that were written
    under definitions before the version `rewritten_below`, where columns have other names or types; one by one in turn
    behind `attempts` that failed, so that one that cannot be read keeps no other. Ranges that are `uncopied` are copied
    behind what is merged, of open days, too, unless an attempt failed.
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
    """Some of these ranges; others follow when their day is looked for again, so that no merge waits for them."""
    ranges = _anew(anew, is_copy=is_copy)
    told = (
        "objects are copied with wider types" if is_copy else "objects from before a rename or widening are rewritten"
    )
    reason = told if anew else "nothing is unmerged"
    return MergePlan(chain_end=end, ranges=ranges, left_behind=0, left_behind_bytes=0, reason=reason, backlog=False)


def _anew(ranges: Sequence[MergedRange], *, is_copy: bool) -> tuple[PlannedRange, ...]:
    """So many of these as one job writes, as they are."""
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
    """Indexes behind which to cut. A job that has as much as it may take always cuts, so that the next goes on."""
    if is_open or more:
        cuts = full_cuts(sizes, start, policy, keep=0.0 if more else float(policy.floor_bytes))
    else:
        cuts = even_cuts(sizes, start, policy)
    if not cuts and (more or len(sizes) >= policy.max_objects):
        return [len(sizes)]
    return cuts


def full_cuts(sizes: Sequence[float], start: float, policy: MergePolicy, keep: float) -> list[int]:
    """Indexes behind which to cut so that every part reaches the target and at least `keep` bytes stay behind."""
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
    """Indexes behind which to cut everything into parts as even as the objects allow, none below the floor."""
    total = start + sum(sizes)
    parts = max(1, round(total / policy.target_bytes))
    share, reached, begun, cuts = total / parts, start, 0.0, list[int]()
    for index, size in enumerate(sizes):
        goal = share * (len(cuts) + 1)
        enough = min(reached - begun, total - reached) >= policy.floor_bytes
        # Cut before this object if that lands nearer to the goal than cutting behind it.
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
    """Of a day that is closed nothing is left, unless the job has its share."""
    if more:
        return "the job has its share of objects; the rest follows in the next one"
    return "the day is open, and what is left is kept for its last objects" if left else "everything is merged"
