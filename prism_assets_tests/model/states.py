"""The state of the model: one table, one day, a few staging objects with one row each, and their processes.

The partition, its ranges and publications are values of the product itself. The number of a staging object names its
row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import NamedTuple

from prism_assets.domain.days.partitions import NEW_VERSION, Partition, Publication
from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.merges.plan import plan_merge
from prism_assets.domain.tables.options import MergePolicy
from prism_assets_tests.builders import a_range, a_small_object

Rows = tuple[int, ...]
"""Rows by staging object, in order, doubles included."""

OBJECT_BYTES = 10
CUT_WHILE_OPEN = MergePolicy(target_bytes=OBJECT_BYTES // 2, max_objects=1)
"""Each small object fills two ranges: merges begin while the day is open, and leave a backlog."""
EXTEND_LATER = MergePolicy(target_bytes=4 * OBJECT_BYTES, max_objects=2)
"""No small object fills a range: ranges are cut after the close, and extended when late objects come."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Assumptions of the protocol. The exploration must find a fault without any one of them."""

    ids_under_lock: bool = True
    """Ids of small objects are given under the partition's row lock (H3)."""
    tier_of_first_claim: bool = True
    """The closing mark and the first claim decide on the tier, and a close waits for earlier objects (H2)."""
    epoch_lock: bool = True
    """No partition gets its mark while a batch starts (H2)."""
    claim_locks_rows: bool = True
    """A claim of a merge job locks the job's row (H1)."""
    lease_fences: bool = True
    """A commit proves that no other worker has its batch or job."""
    one_run_a_table: bool = True
    """A catalog run locks its table (H7)."""
    notes_of_others_stay: bool = True
    """A run removes its own note, and others' notes only if none of their calls can still take effect."""
    sensors_read_notes: bool = True
    """A note alone is work for the next catalog run."""
    records_are_fenced: bool = True
    """A run without its lock records nothing, and leaves its note: its call may have followed a newer one."""
    read_back: bool = True
    """A publication is read back before its record."""
    doubt_stays_noted: bool = True
    """A repeated call keeps its note even after an answer to the second copy: the first may still take effect."""
    switch_needs_evidence: bool = True
    """Readers are switched only to ranges with every live row."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of the exploration. `batches` and `late_calls` limit deaths and delayed calls, which would never end.

    `publications_at_once` makes the calls of a publication one step, for faults between other processes.
    `merges_lose_a_row` removes the last row from every merged object, for certificates. `begins_closed` starts with a
    day just closed by a run, with one merged object: publication and switch remain.
    """

    objects: int
    workers: int
    mergers: int
    runs: int
    batches: int
    late_calls: int
    calls_sent_twice: bool = False
    publications_at_once: bool = False
    merges_lose_a_row: bool = False
    begins_closed: bool = False
    policy: MergePolicy = CUT_WHILE_OPEN


class StagingObject(NamedTuple):
    """A row of prism_staging_objects: `pending`, `claimed` or `done`; 0 for no batch."""

    state: str = "pending"
    first_batch: int = 0
    batch: int = 0


class SmallObject(NamedTuple):
    """A row of prism_small_objects."""

    object_id: int
    staging: int
    delayed: bool


class Worker(NamedTuple):
    """A process of a batch: its tasks as (staging object, delayed), the number of uploads, and ids given early."""

    phase: str
    batch: int
    tasks: tuple[tuple[int, bool], ...]
    uploaded: int = 0
    ids: tuple[int, ...] = ()


class Range(NamedTuple):
    """One range of a plan. `extends` is the upper bound of the range read as first input, or -1."""

    lower: int
    upper: int
    extends: int
    rows: Rows


class Plan(NamedTuple):
    """A merge plan, reduced to the fields of the model."""

    chain_end: int
    ranges: tuple[Range, ...]
    backlog: bool


class Merger(NamedTuple):
    """A process with a merge job. `leased` while the job has its token."""

    phase: str
    leased: bool
    plan: Plan | None = None


class Entry(NamedTuple):
    """One entry of a manifest: a small object (staging, delayed), or with `merged` a range (lower, upper)."""

    merged: bool
    first: int
    second: int


class Content(NamedTuple):
    """The content of a catalog location: the live prefix alone, or the entries of a manifest."""

    publication: Publication
    entries: tuple[Entry, ...]


class Call(NamedTuple):
    """A catalog call still to take effect without a waiting caller. `noted` if a note stands for the call."""

    content: Content
    noted: bool


class Run(NamedTuple):
    """A catalog run."""

    phase: str
    locked: bool
    """The run has the lock of the table."""
    known: int = 0
    """Notes the run may remove."""
    content: Content | None = None
    in_doubt: bool = False

    @property
    def noted(self) -> bool:
        """Whether the run's own note exists."""
        return self.phase in ("noted", "written", "checked", "sent", "answered", "read", "recorded")


class State(NamedTuple):
    """Everything: PostgreSQL, the store, the catalog, delayed calls, and the processes."""

    objects: tuple[StagingObject, ...]
    workers: tuple[Worker | None, ...]
    mergers: tuple[Merger | None, ...]
    runs: tuple[Run | None, ...]
    batches: tuple[str, ...] = ()
    live: frozenset[int] = frozenset()
    delayed: frozenset[int] = frozenset()
    small: tuple[SmallObject, ...] = ()
    sequence: int = 0
    partition: Partition | None = None
    chain: tuple[MergedRange, ...] = ()
    merged: tuple[tuple[int, int, Rows], ...] = ()
    job_waits: bool = False
    job_runs: bool = False
    manifests: tuple[Content, ...] = ()
    notes: int = 0
    """Number of notes without a run or a call."""
    calls: tuple[Call, ...] = ()
    shown: Content | None = None


A_NEW_PARTITION = Partition(
    partition_id=1,
    table_id=1,
    date=date(2026, 3, 1),
    current_version=NEW_VERSION,
    desired_version=0,
    last_live_object_id=None,
    switched=False,
    closing_batch_id=None,
    published_object_id=None,
    last_object_id=0,
)


def first_state(size: Size) -> State:
    """Returns unclaimed objects, and idle processes."""
    state = State(
        objects=(StagingObject(),) * size.objects,
        workers=(None,) * size.workers,
        mergers=(None,) * size.mergers,
        runs=(None,) * size.runs,
    )
    return _just_closed(state) if size.begins_closed else state


def _just_closed(state: State) -> State:
    whole = a_range(0, 1, OBJECT_BYTES, 1, fingerprint((0,)))
    return state._replace(
        objects=(StagingObject("done", 1, 1),),
        runs=(None, Run("may publish", True)),
        batches=("done",),
        live=frozenset({0}),
        small=(SmallObject(1, 0, False),),
        sequence=1,
        partition=replace(
            A_NEW_PARTITION, last_object_id=1, desired_version=1, closing_batch_id=1, last_live_object_id=1
        ),
        chain=(whole,),
        merged=((0, 1, (0,)),),
    )


def fingerprint(rows: Rows) -> int:
    """Returns the fingerprint of rows: a sum unique for each set of them, doubles included."""
    return sum(int(10**row) for row in rows)


@cache
def plan(policy: MergePolicy, is_open: bool, chain: tuple[MergedRange, ...], small: tuple[SmallObject, ...]) -> Plan:
    """Returns the product's own plan for unmerged objects, reduced to the fields of the model."""
    end = chain[-1].upper_bound if chain else 0
    above = [item for item in small if item.object_id > end]
    staging = {item.object_id: item.staging for item in above}
    made = plan_merge(
        policy=policy,
        is_open=is_open,
        chain=chain,
        unmerged=[
            a_small_object(
                item.object_id,
                content_length=OBJECT_BYTES,
                row_count=1,
                fingerprint=fingerprint((item.staging,)),
            )
            for item in above[: policy.max_objects]
        ],
        more=len(above) > policy.max_objects,
        shrinkage=1.0,
    )
    ranges = tuple(
        Range(
            item.lower_bound,
            item.upper_bound,
            item.extends.upper_bound if item.extends else -1,
            tuple(staging[found.object_id] for found in item.objects),
        )
        for item in made.ranges
    )
    return Plan(made.chain_end, ranges, made.backlog)
