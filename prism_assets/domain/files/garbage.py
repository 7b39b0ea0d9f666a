"""Decides which objects below a table's prefix are garbage, and why. No other module decides this.

An object is garbage if two things hold. No present or future run can write, commit or name it. No reader was sent to it
since the reader lease began. Once a rule holds for an object, it holds for ever, so a deletion a moment later is safe,
whatever else happens at the table. Only the last rule needs an object's age, but young objects are spared in any case.

- A merged object belongs to the rewrite in its key. A running rewrite may still commit the object; a dropped one never
  does. A staged copy may still replace its range.
- A merged object outside the chain was a range once, the last one up to its upper bound. Only publications of this
  version name it, and later publications have greater versions. Before the switch no publication names merged objects.
  If another range ends at the same bound, the object never was a range.
- A merged object beyond the end of the chain never was a range, and no rewrite but a running one may commit it. A
  restore of PostgreSQL may lose the range and the rewrite. The small objects are then merged again. Until they are, it
  may be the only object with their rows: garbage collection may have deleted them before the restore.
- A replaced object is named only by publications of earlier revisions. It stays for the reader lease, and so does the
  old object of an extended range, because PostgreSQL may be restored to a time before the replacement.
- A replaced small object in the live prefix is listed by readers of an open day. It is needed until these readers were
  sent to a manifest.
- A manifest or list of symlinks older than the one shown when the reader lease began is never shown again, because
  publications only move forward.
- A small object of a log of changes is needed by the fold that takes it, in its current form.
- A small object is in merged objects for every reader if its id is not above the version shown when the reader lease
  began. Merges read objects above the end of the chain, repairs and publications those above a version shown later.
- An uncommitted upload of a finished start of a staging object will never be committed, nor will an object of a dropped
  rewrite.
- A day that expired, and left every catalog before the reader lease began, has no readers and gets no more objects:
  everything in its folders goes.
- An object of a fold that was replaced when the reader lease began is named only by publications of earlier versions,
  because the version of a day is the number of its last fold or merge. Objects without readers, hidden records and
  pending changes, are read by the next fold, which comes later. A finished fold records no further object. Unsettled
  records are read by folds, whatever has become of their day.
- A dropped table that no catalog showed when the reader lease began has no readers, and nothing is converted, merged or
  folded for it: everything goes.
- Quarantined lines stay a fixed number of days after the arrival of their staging object.
- A spool object without a row is left over from a flush that did not commit. Once the position of its partition is
  beyond its first message, it never will: a commit begins at the position. A converted one stays for `spool_days`.
- A file of an Iceberg table that no snapshot names differs from a file of a running commit only by its age. A commit
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
    SpoolKey,
    SymlinkKey,
)
from prism_assets.domain.files.rewrites import RewriteKind, RewriteRecord, RewriteState
from prism_assets.domain.records.folding import RecordPart


class Reason(enum.Enum):
    """Why an object is garbage."""

    SUPERSEDED = "superseded"
    """An object replaced by a rewrite, or a merged one whose range was extended, under another key."""
    ABANDONED = "abandoned"
    """A merged object that was never committed and never will be."""
    REPLACED = "replaced"
    """A manifest or list of symlinks without readers."""
    MERGED = "merged"
    """A small object whose rows all readers find in merged objects."""
    STRAY = "stray"
    """A small object or quarantined lines that nobody can commit: their start of a staging object has finished, or
    their rewrite was dropped. Or a spool object that no worker committed."""
    REBUILT = "rebuilt"
    """A small object replaced by a rebuild of its day."""

    EXPIRED = "expired"
    """Rows of a day past the table's retention, and quarantined lines and converted spool objects past theirs."""
    DROPPED = "dropped"
    """Any object in the folder of a dropped table."""
    UNLISTED = "unlisted"
    """A file of an Iceberg table that no snapshot needs."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class DayRecords:
    """The records of a day: its partition, and the bounds of its ranges in order."""

    partition: Partition
    bounds: tuple[tuple[int, int], ...] = ()
    rewrite_ids: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The rewrite of each range's object, by its bounds."""
    fresh: frozenset[tuple[int, int]] = frozenset()
    """Ranges made, extended or rewritten since the reader lease began."""
    staged: frozenset[tuple[int, int, int]] = frozenset()
    """Staged files that may still replace a range, by bounds and by the rewrite that wrote them."""
    shown: Publication | None = None
    """The least of the publications that readers of all catalogs were sent to when the lease began.

    None if one is unknown or had none.
    """
    is_gone: bool = False
    """The day had expired by then, and no catalog showed it."""
    folded_object_id: int | None = None
    """In a log of changes, the last small object taken by folds. Folds still read those above."""

    @property
    def is_shown_as_it_is(self) -> bool:
        """Whether all publications that readers were sent to since the reader lease began have the current revision."""
        return self.shown is not None and self.shown.revision >= self.partition.revision


@dataclass(frozen=True)
class Upload:
    """One start of a staging object for one event date."""

    date: date
    staging_object_id: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class UploadRecord:
    """The record of an upload: id, tier and rewrite of its small object, if it is committed."""

    object_id: int | None = None
    delayed: bool | None = None
    rewrite_id: int = 0
    is_over: bool = False
    """No more objects of this start will be committed."""
    is_foreign: bool = False
    """The table has, and had, no such staging object, because objects are registered before any upload for them."""

    @property
    def is_stray(self) -> bool:
        """Whether it is not committed and never will be."""
        return self.object_id is None and self.is_over


@dataclass(frozen=True, kw_only=True)
class WrittenByFold:
    """The record of an object written by a fold."""

    is_recorded: bool = False
    """False while its fold is running."""
    replaced_by: int | None = None
    """The fold that had replaced it when the reader lease began.

    Later replacements do not count, because PostgreSQL may be restored to a time before them.
    """
    is_settled: bool = False
    """No fold reads it again."""
    is_over: bool = False
    """Its fold has finished."""
    is_foreign: bool = False
    """The table never had such a fold."""


@dataclass(frozen=True, kw_only=True)
class SpoolRecord:
    """The record of a spool object."""

    is_registered: bool = False
    is_over: bool = False
    """It was converted `spool_days` ago, and nothing that runs may read it again.

    If it is not registered: no worker can commit it any more.
    """
    is_foreign: bool = False
    """It is not registered, and the table never read this topic."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """The records of some keys: of days, uploads, rewrites by number, objects written by folds, and spool objects."""

    days: Mapping[date, DayRecords]
    uploads: Mapping[Upload, UploadRecord]
    quarantined: Mapping[Upload, int]
    """Uploads with kept quarantined lines, each with the rewrite of these lines."""
    rewrites: Mapping[int, RewriteRecord] = field(default_factory=dict)
    of_folds: Mapping[RecordKey, WrittenByFold] = field(default_factory=dict)
    spooled: Mapping[SpoolKey, SpoolRecord] = field(default_factory=dict)
    quarantine_from: date = date.min
    """Lines of objects that arrived earlier are no longer kept."""
    is_dropped: bool = False
    """The table was dropped, and no catalog showed it when the reader lease began."""

    def state_of(self, rewrite_id: int) -> RewriteState | None:
        """Returns the state of a rewrite, or None for an unknown number, as after a restore of PostgreSQL."""
        return self.rewrites[rewrite_id].state if rewrite_id in self.rewrites else None


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """An unneeded object, with the reason. The length is in bytes, `date` is from the key."""

    key: str
    date: date
    content_length: int
    last_modified: datetime
    reason: Reason


def upload_of(named: SmallObjectKey | QuarantineKey) -> Upload:
    """Returns the upload named by a key."""
    return Upload(named.date, named.staging_object_id, named.generation)


def is_foreign(named: ObjectKey | None, records: Records) -> bool:
    """Whether the purpose of an object is unknown here. Foreign objects are reported and stay."""
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
        case SpoolKey():
            return records.spooled[named].is_foreign
    return True


def garbage_reason(named: ObjectKey, records: Records) -> Reason | None:
    """Returns why an object is garbage. None if it is, or may be, needed, or is foreign."""
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
        case SpoolKey():
            known = records.spooled[named]
            if not known.is_over:
                return None
            return Reason.EXPIRED if known.is_registered else Reason.STRAY


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
    if named.upper_bound > (end := max(uppers, default=0)):
        return Reason.ABANDONED if named.rewrite_id and day.partition.last_object_id <= end else None
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
    """Divides garbage into objects that one run may delete, the oldest first, and objects it holds back.

    A run deletes at most `fraction` of the table's objects and of their bytes, but at least one object, so that it ends
    some day.
    """
    ordered = sorted(garbage, key=lambda item: (item.last_modified, item.key))
    most_objects, most_bytes = int(objects * fraction), int(content_length * fraction)
    count = size = 0
    for item in ordered:
        if count and (count + 1 > most_objects or size + item.content_length > most_bytes):
            break
        count, size = count + 1, size + item.content_length
    return ordered[:count], ordered[count:]
