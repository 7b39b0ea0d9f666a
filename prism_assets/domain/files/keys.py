"""All S3 keys of the lake. Keys are built here and nowhere else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.names import TableName
from prism_assets.domain.records.folding import RecordPart


def table_hash(name: TableName) -> str:
    """First two bytes of the MD5 of the physical `schema.table` as four hex digits; spreads tables over key space."""
    return hashlib.md5(name.physical.encode(), usedforsecurity=False).hexdigest()[:4]


def marker_key(prefix: str) -> str:
    """The object that says which database a lake belongs to; beside the folders of tables, so no reader lists it."""
    return f"{prefix}prism-installation.json"


def erasure_records_prefix(prefix: str) -> str:
    """The folder of the records of erasures; beside the folders of tables, as the marker is."""
    return f"{prefix}prism-erasures/"


def table_folder(name: TableName) -> str:
    """The name of the folder of a table in the lake."""
    return f"{table_hash(name)}.{name.physical}"


@dataclass(frozen=True)
class SmallObjectKey:
    """What the key of a small object names: one start of a staging object, and the event date of the rows.

    `rewrite_id` is the rewrite that wrote the object, 0 if it is the first. Rewritten ones lie in the delayed folder,
    whatever their tier.
    """

    date: date
    staging_object_id: int
    generation: int
    delayed: bool
    rewrite_id: int = 0


@dataclass(frozen=True)
class MergedObjectKey:
    """What the key of a merged object names: the small objects with lower_bound < id <= upper_bound of a day.

    `rewrite_id` is the rewrite that wrote the object.
    """

    date: date
    lower_bound: int
    upper_bound: int
    rewrite_id: int = 0


@dataclass(frozen=True)
class ManifestKey:
    """What the key of a manifest names."""

    date: date
    publication: Publication


@dataclass(frozen=True)
class SymlinkKey:
    """What the key of a list of objects names that readers of symlinks are sent to."""

    date: date
    publication: Publication


@dataclass(frozen=True)
class QuarantineKey:
    """What the key of quarantined lines names: one start of a staging object, by its day of arrival.

    `rewrite_id` is the rewrite that wrote them, 0 for a conversion.
    """

    date: date
    staging_object_id: int
    generation: int
    rewrite_id: int = 0


@dataclass(frozen=True)
class RecordKey:
    """What the key of an object of a fold names: records of a day, or changes that wait, and the fold that wrote it."""

    date: date
    part: RecordPart
    fold_id: int
    bucket: int
    cohort: int


ObjectKey = SmallObjectKey | MergedObjectKey | ManifestKey | SymlinkKey | QuarantineKey | RecordKey


def is_symlink_folder(location: str) -> bool:
    """Whether readers who are sent to a folder find a list of objects there, and no objects."""
    return _SYMLINK_FOLDER.search(location) is not None


_SYMLINK_FOLDER = re.compile(r"/symlink/dt=[0-9]{4}-[0-9]{2}-[0-9]{2}/version-[^/]+/$")


@dataclass(frozen=True)
class TableKeys:
    """Builds the keys of one table. `prefix` is the lake's prefix in its bucket, empty or ending with `/`."""

    bucket: str
    prefix: str
    name: TableName

    @property
    def root(self) -> str:
        """`{prefix}{hash}.{physical_schema}.{physical_table}/`."""
        return f"{self.prefix}{table_folder(self.name)}/"

    def live_prefix(self, day: date) -> str:
        """The folder that readers of an open partition list."""
        return f"{self.root}live/dt={day.isoformat()}/"

    def delayed_prefix(self, day: date) -> str:
        """The folder of small objects that no reader lists: of rows that came after the mark, and rewritten ones."""
        return f"{self.root}delayed/dt={day.isoformat()}/"

    def merged_prefix(self, day: date) -> str:
        """The folder of merged objects and manifests."""
        return f"{self.root}merged/dt={day.isoformat()}/"

    @property
    def all_merged_prefix(self) -> str:
        """The folder of the merged objects and manifests of all days."""
        return f"{self.root}merged/"

    def data_prefixes(self, day: date) -> tuple[str, ...]:
        """The folders of all objects of a day that readers are sent to, with what stands beside them."""
        records = f"{self.root}{_RECORD_FOLDERS[RecordPart.VISIBLE]}/dt={day.isoformat()}/"
        return self.live_prefix(day), self.delayed_prefix(day), self.merged_prefix(day), records

    @property
    def record_prefixes(self) -> tuple[str, ...]:
        """The folders of what folds write."""
        return tuple(f"{self.root}{folder}/" for folder in _RECORD_FOLDERS.values())

    @property
    def iceberg_prefix(self) -> str:
        """The folder of what only readers of Iceberg read: metadata, and in `data/` what strangers write."""
        return f"{self.root}iceberg/"

    @property
    def archive_prefix(self) -> str:
        """The folder of rows of PostgreSQL that are kept there no longer. No reader of the table lists it."""
        return f"{self.root}archive/"

    def archived_rows(self, kind: str, ids: Collection[int]) -> str:
        """The Parquet object with rows of one kind that left PostgreSQL, named by the ids that they are of."""
        digest = hashlib.sha256(",".join(map(str, sorted(ids))).encode()).hexdigest()[:12]
        return f"{self.archive_prefix}{kind}/{min(ids):019d}-{max(ids):019d}-{digest}.parquet"

    def small_object(
        self, day: date, staging_object_id: int, *, delayed: bool, generation: int = 0, rewrite_id: int = 0
    ) -> str:
        """The Parquet object that holds the rows of one staging object for one event date.

        An object that was restarted writes under keys of its own, told by its generation: what may still come of the
        start before, a late upload or its removal, touches other keys. One that a rewrite wrote has its number,
        and lies where nobody lists it: readers of an open day would find its rows twice.
        """
        folder = self.delayed_prefix(day) if delayed or rewrite_id else self.live_prefix(day)
        return f"{folder}{_start(staging_object_id, generation, rewrite_id)}.parquet"

    def merged_object(self, day: date, lower_bound: int, upper_bound: int, rewrite_id: int = 0) -> str:
        """The merged object of the small objects with lower_bound < id <= upper_bound.

        The number of the rewrite that wrote it tells it from all others with its bounds.
        """
        again = f"-r{rewrite_id}" if rewrite_id else ""
        return f"{self.merged_prefix(day)}part-{lower_bound:019d}-{upper_bound:019d}{again}.parquet"

    def manifest(self, day: date, upper_bound: int, published_object_id: int, revision: int = 0) -> str:
        """The manifest of the ranges up to upper_bound and the small objects above it up to published_object_id.

        A revision above 0 tells it from the one that named the same objects with lengths from before a repair.
        """
        return f"{self.merged_prefix(day)}manifest-{_published(upper_bound, published_object_id, revision)}.json"

    @property
    def all_symlinks_prefix(self) -> str:
        """The folder of the lists of objects of all days."""
        return f"{self.root}symlink/"

    def symlinks(self, day: date, upper_bound: int, published_object_id: int, revision: int = 0) -> str:
        """The list of the same objects as the manifest of these numbers has, alone in its folder: readers list that."""
        version = _published(upper_bound, published_object_id, revision)
        return f"{self.all_symlinks_prefix}dt={day.isoformat()}/version-{version}/objects.txt"

    def quarantine(self, arrival: date, staging_object_id: int, generation: int = 0, rewrite_id: int = 0) -> str:
        """The lines of one staging object that were set aside, by day of arrival (UTC)."""
        name = _start(staging_object_id, generation, rewrite_id)
        return f"{self.root}quarantine/dt={arrival:%Y-%m-%d}/{name}.jsonl.gz"

    def record_object(self, day: date, part: RecordPart, fold_id: int, bucket: int, cohort: int) -> str:
        """An object that a fold of a join table writes; the folder says what it holds, and no two folds share a key.

        So do merges of records, which have numbers among those of folds.
        """
        folder = _RECORD_FOLDERS[part]
        return f"{self.root}{folder}/dt={day.isoformat()}/fold-{fold_id:019d}-{bucket:05d}-{cohort:08d}.parquet"

    def parse(self, key: str) -> ObjectKey | None:
        """What a key names; None for any that is not exactly as this table's keys are built."""
        match = _KEY.fullmatch(key.removeprefix(self.root)) if key.startswith(self.root) else None
        if match is None:
            return None
        try:
            named = _named(match)
        except ValueError:  # no day of the calendar
            return None
        return named if self._key(named) == key and _is_recordable(match) else None

    def _key(self, named: ObjectKey) -> str:
        match named:
            case SmallObjectKey(day, number, generation, delayed, rewrite_id):
                return self.small_object(day, number, delayed=delayed, generation=generation, rewrite_id=rewrite_id)
            case MergedObjectKey(day, lower, upper, rewrite_id):
                return self.merged_object(day, lower, upper, rewrite_id)
            case ManifestKey(day, shown):
                return self.manifest(day, shown.version, shown.published_object_id, shown.revision)
            case SymlinkKey(day, shown):
                return self.symlinks(day, shown.version, shown.published_object_id, shown.revision)
            case QuarantineKey(day, number, generation, rewrite_id):
                return self.quarantine(day, number, generation, rewrite_id)
            case RecordKey(day, part, fold_id, bucket, cohort):
                return self.record_object(day, part, fold_id, bucket, cohort)


_RECORD_FOLDERS = {RecordPart.VISIBLE: "records", RecordPart.HIDDEN: "hidden", RecordPart.PENDING: "pending"}
_KEY = re.compile(
    r"(?P<folder>live|delayed|merged|symlink|quarantine|records|hidden|pending)/dt=(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})/(?:"
    r"prism-(?P<start>[0-9]{19})(?:-g(?P<generation>[0-9]+))?(?:-r(?P<again>[0-9]+))?\.(?:parquet|jsonl\.gz)"
    r"|part-(?P<lower>[0-9]{19})-(?P<upper>[0-9]{19})(?:-r(?P<rewrite>[0-9]+))?\.parquet"
    r"|fold-(?P<fold>[0-9]{19})-(?P<bucket>[0-9]{5})-(?P<cohort>[0-9]{8})\.parquet"
    r"|(?:manifest|version)-(?P<version>[0-9]{19})(?:-(?P<last>[0-9]{19}))?(?:-r(?P<revision>[0-9]+))?"
    r"(?:\.json|/objects\.txt))"
)


def _is_recordable(match: re.Match[str]) -> bool:
    """Whether PostgreSQL has such numbers: ids are bigint, generations and revisions of publications integer."""
    ids = ("start", "lower", "upper", "version", "last", "fold", "again", "rewrite")
    counts = ("generation", "revision")
    return all(int(match[name] or 0) < 1 << 63 for name in ids) and all(
        int(match[name] or 0) < 1 << 31 for name in counts
    )


def _named(match: re.Match[str]) -> ObjectKey:
    """Folder and name need not fit together: the key that is built of what they say tells."""
    day, folder = date.fromisoformat(match["date"]), match["folder"]
    if match["start"]:
        number, generation, rewrite_id = int(match["start"]), int(match["generation"] or 0), int(match["again"] or 0)
        if folder == "quarantine":
            return QuarantineKey(day, number, generation, rewrite_id)
        return SmallObjectKey(day, number, generation, folder == "delayed", rewrite_id)
    if match["lower"]:
        return MergedObjectKey(day, int(match["lower"]), int(match["upper"]), int(match["rewrite"] or 0))
    if match["fold"]:
        parts = {name: part for part, name in _RECORD_FOLDERS.items()}
        part = parts.get(folder, RecordPart.VISIBLE)
        return RecordKey(day, part, int(match["fold"]), int(match["bucket"]), int(match["cohort"]))
    version = int(match["version"])
    shown = Publication(version, int(match["last"] or version), int(match["revision"] or 0))
    return SymlinkKey(day, shown) if folder == "symlink" else ManifestKey(day, shown)


def _published(upper_bound: int, published_object_id: int, revision: int) -> str:
    """The part of a name that decides which objects a publication shows."""
    small = f"-{published_object_id:019d}" if published_object_id > upper_bound else ""
    again = f"-r{revision}" if revision else ""
    return f"{upper_bound:019d}{small}{again}"


def _start(staging_object_id: int, generation: int, rewrite_id: int) -> str:
    """The name of what one start of a staging object gave, and of the rewrite that wrote it again, if any did."""
    again = f"-r{rewrite_id}" if rewrite_id else ""
    return f"prism-{staging_object_id:019d}" + (f"-g{generation}" if generation else "") + again
