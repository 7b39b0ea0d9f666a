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
from prism_assets.domain.streams.topic import CLUSTER, SPOOL_DAY, SPOOL_FOLDER, SPOOL_NAME, TOPIC, Topic


def table_hash(name: TableName) -> str:
    """Returns the first two bytes of the MD5 of the physical `schema.table`, as four hex digits.

    Spreads tables over keys.
    """
    return hashlib.md5(name.physical.encode(), usedforsecurity=False).hexdigest()[:4]


def marker_key(prefix: str) -> str:
    """Returns the key of the marker with the lake's database.

    It lies beside the folders of tables, so no reader lists it.
    """
    return f"{prefix}prism-installation.json"


def erasure_records_prefix(prefix: str) -> str:
    """Returns the folder of the records of erasures. It lies beside the folders of tables, like the marker."""
    return f"{prefix}prism-erasures/"


def table_folder(name: TableName) -> str:
    """Returns the name of a table's folder in the lake."""
    return f"{table_hash(name)}.{name.physical}"


@dataclass(frozen=True)
class SmallObjectKey:
    """A parsed key of a small object: one start of a staging object, and the event date of the rows.

    `rewrite_id` is the rewrite that wrote the object, 0 for none. Rewritten objects are in the delayed folder, whatever
    their tier.
    """

    date: date
    staging_object_id: int
    generation: int
    delayed: bool
    rewrite_id: int = 0


@dataclass(frozen=True)
class MergedObjectKey:
    """A parsed key of a merged object: the small objects with lower_bound < id <= upper_bound of a day.

    `rewrite_id` is the rewrite that wrote the object.
    """

    date: date
    lower_bound: int
    upper_bound: int
    rewrite_id: int = 0


@dataclass(frozen=True)
class ManifestKey:
    """A parsed key of a manifest."""

    date: date
    publication: Publication


@dataclass(frozen=True)
class SymlinkKey:
    """A parsed key of a list of objects, for readers of symlinks."""

    date: date
    publication: Publication


@dataclass(frozen=True)
class QuarantineKey:
    """A parsed key of quarantined lines: one start of a staging object, and its day of arrival.

    `rewrite_id` is the rewrite that wrote them, 0 for a conversion.
    """

    date: date
    staging_object_id: int
    generation: int
    rewrite_id: int = 0


@dataclass(frozen=True)
class RecordKey:
    """A parsed key of an object written by a fold: records of a day, or pending changes."""

    date: date
    part: RecordPart
    fold_id: int
    bucket: int
    cohort: int


@dataclass(frozen=True)
class SpoolKey:
    """A parsed key of a spool object: messages of a topic of Kafka.

    `date` is that of the earliest message; `name` begins with the topic's id, the first partition and its offset.
    """

    date: date
    cluster: str
    topic: str
    name: str

    @property
    def first(self) -> tuple[str, int, int]:
        """The topic's id, as names have it, and partition and offset of the first message."""
        topic_id, partition, offset, _ = self.name.rsplit("-", 3)
        return topic_id, int(partition), int(offset)


ObjectKey = SmallObjectKey | MergedObjectKey | ManifestKey | SymlinkKey | QuarantineKey | RecordKey | SpoolKey


def spool_name(topic_id: str, partition: int, from_offset: int, digest: str) -> str:
    """Returns the name of a spool object, for `TableKeys.spool`.

    `partition` and `from_offset` are those of the first segment, `digest` is the hexadecimal SHA-256 of the content.
    """
    return f"{topic_id.replace('/', '_')}-{partition:05d}-{from_offset:019d}-{digest[:16]}.parquet"


def is_symlink_folder(location: str) -> bool:
    """Whether a folder contains a list of objects for readers, instead of objects."""
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
        """Returns the folder listed by readers of an open partition."""
        return f"{self.root}live/dt={day.isoformat()}/"

    def delayed_prefix(self, day: date) -> str:
        """Returns the folder of small objects that no reader lists: late ones, and rewritten ones."""
        return f"{self.root}delayed/dt={day.isoformat()}/"

    def merged_prefix(self, day: date) -> str:
        """Returns the folder of merged objects and manifests."""
        return f"{self.root}merged/dt={day.isoformat()}/"

    @property
    def all_merged_prefix(self) -> str:
        """The folder of merged objects and manifests of all days."""
        return f"{self.root}merged/"

    def data_prefixes(self, day: date) -> tuple[str, ...]:
        """Returns the folders of all data objects of a day. Manifests lie in one of them, too."""
        records = f"{self.root}{_RECORD_FOLDERS[RecordPart.VISIBLE]}/dt={day.isoformat()}/"
        return self.live_prefix(day), self.delayed_prefix(day), self.merged_prefix(day), records

    @property
    def record_prefixes(self) -> tuple[str, ...]:
        """The folders of objects written by folds."""
        return tuple(f"{self.root}{folder}/" for folder in _RECORD_FOLDERS.values())

    @property
    def iceberg_prefix(self) -> str:
        """The folder of files only for readers of Iceberg: metadata, and in `data/` files of foreign writers."""
        return f"{self.root}iceberg/"

    @property
    def archive_prefix(self) -> str:
        """The folder of rows that left PostgreSQL. No reader of the table lists it."""
        return f"{self.root}archive/"

    def archived_rows(self, kind: str, ids: Collection[int]) -> str:
        """Returns the key of a Parquet object with archived rows of one kind, named by the ids of their subjects."""
        digest = hashlib.sha256(",".join(map(str, sorted(ids))).encode()).hexdigest()[:12]
        return f"{self.archive_prefix}{kind}/{min(ids):019d}-{max(ids):019d}-{digest}.parquet"

    def small_object(
        self, day: date, staging_object_id: int, *, delayed: bool, generation: int = 0, rewrite_id: int = 0
    ) -> str:
        """Returns the key of the rows of one staging object on one event date.

        The generation gives a restarted object its own keys, so a late upload of the earlier start, or its removal,
        touches other keys. A rewritten object has the number of its rewrite and lies in a folder that no reader lists,
        because readers of an open day would find its rows twice.
        """
        folder = self.delayed_prefix(day) if delayed or rewrite_id else self.live_prefix(day)
        return f"{folder}{_start(staging_object_id, generation, rewrite_id)}.parquet"

    def merged_object(self, day: date, lower_bound: int, upper_bound: int, rewrite_id: int = 0) -> str:
        """Returns the key of the merged object of the small objects with lower_bound < id <= upper_bound.

        The number of the rewrite distinguishes objects with equal bounds.
        """
        again = f"-r{rewrite_id}" if rewrite_id else ""
        return f"{self.merged_prefix(day)}part-{lower_bound:019d}-{upper_bound:019d}{again}.parquet"

    def manifest(self, day: date, upper_bound: int, published_object_id: int, revision: int = 0) -> str:
        """Returns the key of the manifest of ranges up to upper_bound and small objects above it up to
        published_object_id.

        A revision above 0 distinguishes it from the manifest of the same objects with lengths from before a repair.
        """
        return f"{self.merged_prefix(day)}manifest-{_published(upper_bound, published_object_id, revision)}.json"

    @property
    def all_symlinks_prefix(self) -> str:
        """The folder of lists of objects, of all days."""
        return f"{self.root}symlink/"

    def symlinks(self, day: date, upper_bound: int, published_object_id: int, revision: int = 0) -> str:
        """Returns the key of a list of the same objects as in the manifest with these numbers.

        The list is alone in its folder, because readers list the folder.
        """
        version = _published(upper_bound, published_object_id, revision)
        return f"{self.all_symlinks_prefix}dt={day.isoformat()}/version-{version}/objects.txt"

    def quarantine(self, arrival: date, staging_object_id: int, generation: int = 0, rewrite_id: int = 0) -> str:
        """Returns the key of one staging object's quarantined lines, by day of arrival (UTC)."""
        name = _start(staging_object_id, generation, rewrite_id)
        return f"{self.root}quarantine/dt={arrival:%Y-%m-%d}/{name}.jsonl.gz"

    @property
    def all_spool_prefix(self) -> str:
        """The folder of spool objects of all topics. No discovery lists it."""
        return f"{self.root}{SPOOL_FOLDER}/"

    def spool_prefix(self, topic: Topic) -> str:
        """Returns the folder of the spool objects of a topic."""
        return f"{self.root}{topic.spool_folder}"

    def spool(self, topic: Topic, day: date, name: str) -> str:
        """Returns the key of a spool object, by the UTC date of its earliest message. See `spool_name`."""
        return f"{self.spool_prefix(topic)}dt={day.isoformat()}/{name}"

    def record_object(self, day: date, part: RecordPart, fold_id: int, bucket: int, cohort: int) -> str:
        """Returns the key of an object written by a fold or a merge of records.

        The folder states the content. Folds and merges share one sequence of numbers, so no two share a key.
        """
        folder = _RECORD_FOLDERS[part]
        return f"{self.root}{folder}/dt={day.isoformat()}/fold-{fold_id:019d}-{bucket:05d}-{cohort:08d}.parquet"

    def parse(self, key: str) -> ObjectKey | None:
        """Parses a key. Returns None for every key that differs from this table's keys in any character."""
        below = key.removeprefix(self.root) if key.startswith(self.root) else ""
        if below.startswith(f"{SPOOL_FOLDER}/"):
            return _spool_key(below)
        match = _KEY.fullmatch(below)
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
            case SpoolKey(day, cluster, topic, name):
                return self.spool(Topic(cluster=cluster, name=topic), day, name)


_RECORD_FOLDERS = {RecordPart.VISIBLE: "records", RecordPart.HIDDEN: "hidden", RecordPart.PENDING: "pending"}
_KEY = re.compile(
    r"(?P<folder>live|delayed|merged|symlink|quarantine|records|hidden|pending)/dt=(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})/(?:"
    r"prism-(?P<start>[0-9]{19})(?:-g(?P<generation>[0-9]+))?(?:-r(?P<again>[0-9]+))?\.(?:parquet|jsonl\.gz)"
    r"|part-(?P<lower>[0-9]{19})-(?P<upper>[0-9]{19})(?:-r(?P<rewrite>[0-9]+))?\.parquet"
    r"|fold-(?P<fold>[0-9]{19})-(?P<bucket>[0-9]{5})-(?P<cohort>[0-9]{8})\.parquet"
    r"|(?:manifest|version)-(?P<version>[0-9]{19})(?:-(?P<last>[0-9]{19}))?(?:-r(?P<revision>[0-9]+))?"
    r"(?:\.json|/objects\.txt))"
)


_SPOOL_KEY = re.compile(
    f"{SPOOL_FOLDER}/(?P<cluster>{CLUSTER.pattern})/(?P<topic>{TOPIC.pattern})/"
    f"dt=(?P<date>{SPOOL_DAY})/(?P<name>{SPOOL_NAME})"
)


def _spool_key(below: str) -> SpoolKey | None:
    """Parses a key below the folder of the table."""
    match = _SPOOL_KEY.fullmatch(below)
    if match is None or int(match["partition"]) >= 1 << 31 or int(match["offset"]) >= 1 << 63:
        return None
    if len(match["partition"]) > 5 and match["partition"].startswith("0"):
        return None
    try:
        return SpoolKey(date.fromisoformat(match["date"]), match["cluster"], match["topic"], match["name"])
    except ValueError:  # no day of the calendar
        return None


def _is_recordable(match: re.Match[str]) -> bool:
    """Whether PostgreSQL can store the numbers: ids are bigint, generations and revisions of publications integer."""
    ids = ("start", "lower", "upper", "version", "last", "fold", "again", "rewrite")
    counts = ("generation", "revision")
    return all(int(match[name] or 0) < 1 << 63 for name in ids) and all(
        int(match[name] or 0) < 1 << 31 for name in counts
    )


def _named(match: re.Match[str]) -> ObjectKey:
    """Parses a match. Folder and name may contradict each other; the caller rebuilds the key and compares."""
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
    """Returns the part of a name that identifies the objects of a publication."""
    small = f"-{published_object_id:019d}" if published_object_id > upper_bound else ""
    again = f"-r{revision}" if revision else ""
    return f"{upper_bound:019d}{small}{again}"


def _start(staging_object_id: int, generation: int, rewrite_id: int) -> str:
    """Returns the name of an object of one start of a staging object, with the rewrite that wrote it, if any."""
    again = f"-r{rewrite_id}" if rewrite_id else ""
    return f"prism-{staging_object_id:019d}" + (f"-g{generation}" if generation else "") + again
