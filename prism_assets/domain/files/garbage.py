"""What nobody needs any more below the prefix of a table, and why: decided here alone, from what is recorded.

An object is garbage only if no run that is under way, and none that is still to come, can write, commit or name it, and
no reader was sent to it since the reader lease began. Each rule, once it holds, holds for ever: so nothing that is
deleted a moment later has become needed meanwhile, whoever works at the table. No rule but the last rests on an
object's age, which is asked for besides.

- A merged object is of the rewrite in its key. While that runs, it may commit the object; once it was dropped, it never
  does. A copy that is staged may still take the place of its range.
- One that is no range of the chain was one, the last one up to its upper bound: publications of that version name it,
  and all that are made later are of a greater one. Before the switch none names any. If another range ends where it
  does, it never was a range.
- An object that another one replaced is named by publications of earlier revisions alone. It stays for the reader
  lease, as one does whose range was extended: PostgreSQL may be restored to before that.
- A small object in the live prefix that another one replaced is listed by readers of an open day: it is needed until
  they were sent to a manifest.
- A manifest or a list of symlinks from before what was shown when the reader lease began is never shown again:
  publications go upwards only.
- A small object of a log of changes is read by the fold that takes it, in its present form.
- A small object is in merged objects, for every reader, when its id is not above the version shown when the reader
  lease began. Merges read what is above the end of the chain, repairs and publications what is above a version shown
  later.
- An upload of a start of a staging object that is over, and not committed, will never be, nor will what a rewrite that
  was dropped wrote.
- A day that expired, and was taken out of every catalog before the reader lease began, is read by nobody, and nothing
  is added to it: all that lies in its folders goes.
- An object of a fold that another fold, or a merge, had replaced when the reader lease began is named by publications
  of earlier versions alone, as their version is the number of the last one that changed the day. What no reader is sent
  to, hidden records and changes that wait, is read by the next fold, which comes after. What a fold that is over has
  not recorded, it never will. Records that may still change are read by folds, whatever has become of their day.
- A table that is dropped, and that no catalog showed when the reader lease began, is read by nobody, and nothing is
  converted, merged or folded for it: all of it goes.
- Quarantined lines are kept for so many days after their staging object arrived.
- A file of an Iceberg table that no snapshot names is told from one of a commit under way by its age alone: a commit
  names its files within minutes, or never, and no name is used again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from prism_assets.domain.days.partitions import NEW_VERSION, Partition, Publication, needed_above
from prism_assets.domain.files.keys import (
    ManifestKey,
    MergedObjectKey,
    ObjectKey,
    QuarantineKey,
    RecordKey,
    SmallObjectKey,
    SymlinkKey,
)
from prism_assets.domain.files.rewrites import RewriteKind, RewriteRecord, RewriteState
from prism_assets.domain.records.folding import RecordPart


class Reason(enum.Enum):
    """Why an object is garbage."""

    SUPERSEDED = "superseded"
    """An object that was rewritten, or a merged one whose range was extended, under another key."""
    ABANDONED = "abandoned"
    """A merged object that was never committed, and cannot be any more."""
    REPLACED = "replaced"
    """A manifest, or a list of symlinks, that readers are not sent to any more."""
    MERGED = "merged"
    """A small object whose rows all readers find in merged objects."""
    STRAY = "stray"
    """A small object or quarantined lines of a start of a staging object that is over without them."""
    REBUILT = "rebuilt"
    """A small object whose lines have become rows of another one, by a rebuild of its day."""

    EXPIRED = "expired"
    """Rows of a day that is older than its table keeps rows, or quarantined lines that were kept for their time."""
    DROPPED = "dropped"
    """Whatever lies in the folder of a table that was dropped."""
    UNLISTED = "unlisted"
    """A file of an Iceberg table that none of its snapshots needs."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class DayRecords:
    """What is recorded of a day: its partition, and the bounds of its ranges in order.

    `rewrite_ids` says which rewrite wrote the object of a range, by its bounds; `fresh` are those that were made,
    extended or rewritten since the reader lease began. Objects that are `staged`, told by bounds and rewrite, are ready
    to take the place of a range. `shown` is what readers of every catalog were sent to when the lease began, the least
    of each; None if that is not known of one, or was nothing. `is_gone` if the day had expired by then, and no catalog
    sent readers to it any more. Of a log of changes folds have taken the small objects up to `folded_object_id`, and
    read the others.
    """

    partition: Partition
    bounds: tuple[tuple[int, int], ...] = ()
    rewrite_ids: Mapping[tuple[int, int], int] = field(default_factory=dict)
    fresh: frozenset[tuple[int, int]] = frozenset()
    staged: frozenset[tuple[int, int, int]] = frozenset()
    shown: Publication | None = None
    is_gone: bool = False
    folded_object_id: int | None = None

    @property
    def is_shown_as_it_is(self) -> bool:
        """Whether readers were sent to no publication from before the last repair or rebuild since the lease began."""
        return self.shown is not None and self.shown.revision >= self.partition.revision


@dataclass(frozen=True)
class Upload:
    """One start of a staging object for one event date."""

    date: date
    staging_object_id: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class UploadRecord:
    """What is recorded of an upload: id, tier and rewrite of its small object if it is committed.

    `is_over` if nothing of that start is committed any more. `is_foreign` if the table has no such staging object, and
    so never had one: objects are registered before anything is uploaded for them.
    """

    object_id: int | None = None
    delayed: bool | None = None
    rewrite_id: int = 0
    is_over: bool = False
    is_foreign: bool = False

    @property
    def is_stray(self) -> bool:
        """Whether it is not committed and never will be."""
        return self.object_id is None and self.is_over


@dataclass(frozen=True, kw_only=True)
class WrittenByFold:
    """What is recorded of an object of a fold: whether the fold is over, and which fold replaced it, if any has.

    Only a fold counts that had replaced it when the reader lease began: PostgreSQL may be restored to before that.
    No fold reads it again once it `is_settled`.
    It is not `recorded` as long as its fold is under way. `is_foreign` if the table never had such a fold.
    """

    is_recorded: bool = False
    replaced_by: int | None = None
    is_settled: bool = False
    is_over: bool = False
    is_foreign: bool = False


@dataclass(frozen=True, kw_only=True)
class Records:
    """What is recorded of some keys: of their days, of uploads, of rewrites by number, and of what folds wrote.

    `quarantined` are uploads of which quarantined lines are kept, with the rewrite of these. Lines of objects that
    arrived before `quarantine_from` are kept no longer. `is_dropped` if the table was dropped, and no catalog showed it
    when the reader lease began.
    """

    days: Mapping[date, DayRecords]
    uploads: Mapping[Upload, UploadRecord]
    quarantined: Mapping[Upload, int]
    rewrites: Mapping[int, RewriteRecord] = field(default_factory=dict)
    of_folds: Mapping[RecordKey, WrittenByFold] = field(default_factory=dict)
    quarantine_from: date = date.min
    is_dropped: bool = False

    def state_of(self, rewrite_id: int) -> RewriteState | None:
        """How far a rewrite is; None of a number that is on no record, as after PostgreSQL was set back."""
        return self.rewrites[rewrite_id].state if rewrite_id in self.rewrites else None


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """An object that nobody needs, and why; the length is in bytes. `date` is that in its key."""

    key: str
    date: date
    content_length: int
    last_modified: datetime
    reason: Reason


def upload_of(named: SmallObjectKey | QuarantineKey) -> Upload:
    """The upload that a key names."""
    return Upload(named.date, named.staging_object_id, named.generation)


def is_foreign(named: ObjectKey | None, records: Records) -> bool:
    """Whether nobody here can say what an object is for. Such a one is told, and stays."""
    match named:
        case SmallObjectKey():
            known = records.uploads[upload_of(named)]
            return known.is_foreign or (not named.rewrite_id and known.delayed not in (None, named.delayed))
        case QuarantineKey():
            return records.uploads[upload_of(named)].is_foreign
        case RecordKey():
            return records.of_folds[named].is_foreign
        case MergedObjectKey() | ManifestKey() | SymlinkKey():
            return named.date not in records.days
    return True


def garbage_reason(named: ObjectKey, records: Records) -> Reason | None:
    """Why an object is garbage, or None if somebody needs it, may need it, or is not known."""
    if is_foreign(named, records):
        return None
    if records.is_dropped:
        return Reason.DROPPED
    match named:
        case SmallObjectKey():
            return _of_small_object(named, records)
        case MergedObjectKey():
            return _of_merged_object(named, records.days[named.date], records)
        case RecordKey():
            return _of_record_object(named, records)
        case ManifestKey() | SymlinkKey():
            shown = records.days[named.date].shown
            if records.days[named.date].is_gone:
                return Reason.EXPIRED
            return Reason.REPLACED if shown and named.publication.is_before(shown) else None
        case QuarantineKey():
            return _of_quarantined_lines(named, records)


def _of_quarantined_lines(named: QuarantineKey, records: Records) -> Reason | None:
    if not records.uploads[upload_of(named)].is_over:
        return None
    if records.quarantined.get(upload_of(named)) == named.rewrite_id:
        return Reason.EXPIRED if named.date < records.quarantine_from else None
    return None if records.state_of(named.rewrite_id) is RewriteState.RUNNING else Reason.STRAY


def _of_small_object(named: SmallObjectKey, records: Records) -> Reason | None:
    upload, day = records.uploads[upload_of(named)], records.days.get(named.date)
    state = records.state_of(named.rewrite_id)
    if state is RewriteState.RUNNING:
        return None
    if upload.is_stray or state is RewriteState.DROPPED:
        return Reason.STRAY
    if day is None:
        return None
    if day.is_gone:
        return Reason.EXPIRED
    if upload.object_id is None:
        return None
    stands = named.rewrite_id == upload.rewrite_id
    if stands and day.folded_object_id is not None and upload.object_id > day.folded_object_id:
        return None
    current = records.rewrites.get(upload.rewrite_id)
    if not stands and current and current.kind is RewriteKind.REBUILD:
        return Reason.REBUILT if day.is_shown_as_it_is else None
    oldest = day.shown.version if day.shown else NEW_VERSION
    if upload.object_id <= needed_above(day.partition, oldest):
        return Reason.MERGED
    is_listed = day.shown is None or day.shown.is_live_prefix
    return Reason.SUPERSEDED if not stands and day.is_shown_as_it_is and not is_listed else None


def _of_merged_object(named: MergedObjectKey, day: DayRecords, records: Records) -> Reason | None:
    if day.is_gone:
        return Reason.EXPIRED
    bounds = (named.lower_bound, named.upper_bound)
    state = records.state_of(named.rewrite_id)
    is_current = bounds in day.bounds and day.rewrite_ids.get(bounds, 0) == named.rewrite_id
    if is_current or state is RewriteState.RUNNING or (*bounds, named.rewrite_id) in day.staged:
        return None
    if state is RewriteState.DROPPED:
        return Reason.ABANDONED
    lowers, uppers = {lower for lower, _ in day.bounds}, {upper for _, upper in day.bounds}
    if named.upper_bound > max(uppers, default=0):
        return None
    if any(lower < named.upper_bound <= upper for lower, upper in day.fresh):
        return None
    if bounds in day.bounds:
        return None if day.partition.switched and not day.is_shown_as_it_is else Reason.SUPERSEDED
    if named.upper_bound in uppers:
        return Reason.ABANDONED
    if day.partition.switched and (day.shown is None or named.upper_bound >= day.shown.version):
        return None
    return Reason.SUPERSEDED if named.lower_bound in lowers else Reason.ABANDONED


def _of_record_object(named: RecordKey, records: Records) -> Reason | None:
    known, day = records.of_folds[named], records.days.get(named.date)
    if not known.is_recorded:
        return Reason.ABANDONED if known.is_over else None
    if known.replaced_by is None:
        return Reason.EXPIRED if known.is_settled and day and day.is_gone else None
    if named.part is RecordPart.VISIBLE and not (day and day.shown and day.shown.version >= known.replaced_by):
        return None
    return Reason.SUPERSEDED


def within_fraction(
    garbage: Iterable[Garbage], *, objects: int, content_length: int, fraction: float
) -> tuple[Sequence[Garbage], Sequence[Garbage]]:
    """Divides garbage into what one run may delete, the oldest first, and what it holds back.

    At most that fraction of all objects of the table, and of their bytes; but always one, so that it comes to an end.
    """
    ordered = sorted(garbage, key=lambda item: (item.last_modified, item.key))
    most_objects, most_bytes = int(objects * fraction), int(content_length * fraction)
    count = size = 0
    for item in ordered:
        if count and (count + 1 > most_objects or size + item.content_length > most_bytes):
            break
        count, size = count + 1, size + item.content_length
    return ordered[:count], ordered[count:]
