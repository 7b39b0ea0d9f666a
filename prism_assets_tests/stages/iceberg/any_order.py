"""A lake without Parquet: PostgreSQL, catalog and metadata are real, and data objects are empty files.

So a thousand commits take a minute. The model notes every drop, merge and repair itself. After each publication the
Iceberg table is compared with these notes, not with the platform's own records. Time is that of the steps: every file
is older than the age floor of garbage collection, so youth protects no file from a wrong deletion.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.typedef import Record
from sqlalchemy import Connection

from prism_assets import failpoints
from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.files.data_file import ColumnMetrics, MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Certificate
from prism_assets.domain.iceberg.snapshots import ACTIVE
from prism_assets.domain.merges.plan import PlannedRange
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.publishers.iceberg.loaded import LoadedTable
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.iceberg.report import IcebergTableReport
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.rewrite.commit import commit_rewrite
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.rows import begin_rewrite, written_of
from prism_assets_tests.stages.iceberg.clients import ForgetfulCatalog, LosingCatalog, with_iceberg
from prism_assets_tests.world import World

BEGIN = utc("2031-03-01T00:00")
"""In the future, because the library uses its own clock for commits without a snapshot."""
DAYS = tuple(date(2031, 3, day) for day in (1, 2, 3))
EPOCH = date(1970, 1, 1)
STEPS = (
    "after_load", "after_manifests", "before_commit", "after_commit", "after_readback", "in_record", "after_record",
)  # fmt: skip
WAYS: Mapping[str, Callable[[Catalog], Any]] = {
    "lost": lambda inner: LosingCatalog(inner, applied=False),
    "applied and lost": lambda inner: LosingCatalog(inner),
    "resent": lambda inner: LosingCatalog(inner, resent=True),
    "untrue": lambda inner: ForgetfulCatalog(inner),
}
_RECORDS = (
    "prism_small_objects", "prism_staging_objects", "prism_merge_ranges", "prism_publications",
    "prism_publication_history", "prism_partitions", "prism_iceberg_tables", "prism_rewrites",
)  # fmt: skip
_OF_CATALOG = ("iceberg_tables",)
_LOGS = ("prism_iceberg_log", "prism_gc_log", "iceberg_namespace_properties")


class WilfulCatalog:
    """Fails the next commit as told. Every other commit goes through."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.before: Callable[[], object] = lambda: None
        self.way = ""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        before, self.before = self.before, lambda: None
        before()
        way, self.way = self.way, ""
        catalog = WAYS[way](self.inner) if way else self.inner
        found: CommitTableResponse = catalog.commit_table(table, requirements, updates)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Day:
    """The small objects and ranges of a day, in the order of their ids."""

    partition_id: int
    small: list[SmallObject] = field(default_factory=list)
    ranges: list[MergedRange] = field(default_factory=list)

    @property
    def unmerged(self) -> list[SmallObject]:
        last = self.ranges[-1].upper_bound if self.ranges else 0
        return [item for item in self.small if item.object_id > last]


@dataclass(frozen=True)
class Listed:
    """The data files of a snapshot with their counts, and the unchanging metadata files that list them."""

    files: Counter[tuple[str, int]]
    own: frozenset[str]

    @property
    def paths(self) -> frozenset[str]:
        """All files needed to read the snapshot."""
        return self.own.union(url for url, _ in self.files)


@dataclass(frozen=True)
class Backup:
    """PostgreSQL at one moment. Its rows are kept in a copy, the model's notes here."""

    days: Mapping[date, Day]
    table_uuid: str | None
    is_strange: bool


class AnyOrder:
    """One sequence of steps. `trace` has the steps so far and is printed with every fault."""

    def __init__(self, world: World, catalog: WilfulCatalog, seed: int) -> None:
        self.world, self.catalog = world, catalog
        self.random = random.Random(seed)
        self.trace: list[str] = [f"seed {seed}"]
        self.now = BEGIN
        (self.table,) = world.context.choose_tables(["log.events"])
        self.keys = world.context.lake.keys(self.table)
        self.days: dict[date, Day] = {}
        self.lengths: dict[str, int] = {}
        self.rows: dict[str, frozenset[int]] = {}
        self.repaired: set[str] = set()
        self.forgotten: set[str] = set()
        """Objects that were repaired, and of which a restored PostgreSQL knows nothing: older snapshots list them as
        they were before, and nobody can tell."""
        self._numbers = itertools.count(1)
        self._manifests: dict[str, Counter[tuple[str, int]]] = {}
        self._lists: dict[str, Listed] = {}
        self.backup: Backup | None = None
        self.folder = world.root / "buckets" / "lake" / self.keys.root
        self.is_strange = False
        self.publications = 0
        self.garbage: Counter[str] = Counter()
        self.empty()

    def empty(self) -> None:
        """As after the first apply."""
        emptied = "; ".join(f"DELETE FROM {name}" for name in (*_RECORDS, *_OF_CATALOG, *_LOGS))
        with self.world.context.database.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL session_replication_role = replica; {emptied}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def play(self, steps: int) -> None:
        """Takes so many steps, and publishes in the end."""
        choices = (
            (self.stream, 12), (self.merge, 6), (self.repair, 2), (self.close, 1), (self.wait, 2), (self.publish, 4),
            (self.fail, 2), (self.meanwhile, 2), (self.strike, 1), (self.gc, 1), (self.back_up, 1), (self.restore, 1),
        )  # fmt: skip
        for step in self.random.choices([step for step, _ in choices], [weight for _, weight in choices], k=steps):
            self.trace.append(step.__name__)
            self.now += timedelta(minutes=1)
            step()
        self.publish()

    # Work of the stages.

    def stream(self) -> None:
        """One object for each of one or two days."""
        for day in sorted(self.random.sample(DAYS, self.random.choice((1, 1, 2)))):
            rows = frozenset(next(self._numbers) for _ in range(self.random.randrange(1, 6)))
            with self.world.context.database.begin() as connection:
                self._commit_object(connection, day, rows)

    def _commit_object(self, connection: Connection, day: date, rows: frozenset[int]) -> None:
        number = next(self._numbers)
        connection.exec_driver_sql(
            "INSERT INTO prism_staging_objects (prism_staging_object_id, prism_stream_id, prism_table_id, bucket_name, "
            "object_key, content_length, first_receive_time, state, definition_version) OVERRIDING SYSTEM VALUE "
            f"SELECT {number}, prism_stream_id, prism_table_id, 'staging', '{number}', 1, now(), 'done', 1 "
            f"FROM prism_streams WHERE prism_table_id = {self.table.table_id}"
        )
        ids = partitions.ensure_and_lock(connection, [(self.table.table_id, day)])
        (partition_id,) = ids.values()
        key = self.keys.small_object(day, number, delayed=False)
        made = SmallObject(
            bucket=self.keys.bucket,
            key=key,
            date=day,
            staging_object_id=number,
            generation=0,
            delayed=False,
            upload_start_time=self.now,
            min_time=self.now,
            max_time=self.now,
            **self._facts(key, rows),
        )
        highest = small_objects.insert_small_objects(connection, [(partition_id, made)])
        partitions.raise_last_object(connection, highest)
        known = self.days.setdefault(day, Day(partition_id))
        known.small.append(SmallObject(**{**vars(made), "object_id": highest[partition_id]}))
        self._note(made.url, made.content_length, rows)

    def _facts(self, key: str, rows: frozenset[int]) -> dict[str, Any]:
        """Returns sums in the form of fingerprints. A key written again keeps its length."""
        return {
            "content_length": 100 + zlib.crc32(key.encode()) % 100,
            "row_count": len(rows),
            "fingerprint": sum(rows),
            "file_format": MICROSECONDS,
            "metrics": (ColumnMetrics(2, 0, min(rows), max(rows)),),
        }

    def _note(self, url: str, length: int, rows: frozenset[int]) -> None:
        """Creates an object before anything refers to it."""
        self.lengths[url], self.rows[url] = length, rows
        path = self._path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def _path(self, url: str) -> Path:
        return self.world.root / "buckets" / url.removeprefix("s3://")

    def merge(self) -> None:
        """Merges some or all unmerged objects of a day into a new range or an extension of the last one."""
        chosen = [day for day, known in self.days.items() if known.unmerged]
        if not chosen:
            return
        day = self.random.choice(chosen)
        known = self.days[day]
        objects = known.unmerged[: self.random.randint(1, len(known.unmerged))]
        last = known.ranges[-1] if known.ranges else None
        extended = last if last and self.random.random() < 0.5 else None
        lower = extended.lower_bound if extended else last.upper_bound if last else 0
        upper = objects[-1].object_id
        planned = PlannedRange(lower_bound=lower, upper_bound=upper, extends=extended, objects=tuple(objects))
        rows = frozenset[int]().union(*(self.rows[item.url] for item in planned.inputs))
        with self.world.context.database.begin() as connection:
            rewrite = begin_rewrite(connection, known.partition_id)
            key = self.keys.merged_object(day, lower, upper, rewrite.rewrite_id)
            written = written_of(planned, rewrite, bucket=self.keys.bucket, key=key, **self._facts(key, rows))
            commit_rewrite(connection, rewrite, [planned.replacement(written)], Certificate.SAME_ROWS)
        known.ranges = [*(known.ranges[:-1] if extended else known.ranges), written]
        self._note(written.url, written.content_length, rows)

    def repair(self) -> None:
        """Another length of a small object, merged or not."""
        if not self.days:
            return
        known = self.days[self.random.choice(sorted(self.days))]
        number = self.random.randrange(len(known.small))
        self._repair(known, number, known.small[number].content_length + 1)

    def _repair(self, known: Day, number: int, length: int) -> None:
        before = known.small[number]
        after = replace(before, content_length=length)
        with self.world.context.database.begin() as connection:
            partitions.lock_partition(connection, known.partition_id)
            assert small_objects.set_length(connection, before, after.content_length)
            partitions.raise_revisions(connection, [known.partition_id])
            partitions.count_repair(connection, known.partition_id)
        known.small[number] = after
        self.lengths[after.url] = after.content_length
        self.repaired.add(after.url)

    def close(self) -> None:
        """Ends a day, or switches its readers."""
        if not self.days:
            return
        known = self.days[self.random.choice(sorted(self.days))]
        chosen = f"WHERE prism_partition_id = {known.partition_id}"
        with self.world.context.database.begin() as connection:
            connection.exec_driver_sql(f"UPDATE prism_partitions SET closing_batch_id = 1 {chosen}")
            partitions.close(connection, known.partition_id)
            if known.ranges:
                connection.exec_driver_sql(f"UPDATE prism_partitions SET switched = true {chosen}")
                shown = Publication(known.ranges[-1].upper_bound, known.small[-1].object_id, 0)
                publications.advance(connection, known.partition_id, "glue", shown, self.now, dirty=False)

    def wait(self) -> None:
        """Lets snapshots grow old."""
        self.now += timedelta(minutes=self.random.choice((20, 90, 300)))

    # Publications.

    def publish(self) -> None:
        """Publishes until a report without errors; once, if no one else has changed the table."""
        for left in (1, 0) if self.is_strange else (0,):
            report = self.attempt()
            if not report.problems:
                break
            assert left, (report.problems, self.trace)
        self.is_strange = False
        self.publications += 1
        self.judge()

    def attempt(self) -> IcebergTableReport:
        (report,) = run_iceberg(self.world.context, now=self.now, ignore_pace=True).tables
        return report

    def fail(self) -> None:
        """Fails a publication at one of its steps, or loses or falsifies its answer. Then publishes."""
        way = self.random.choice((*STEPS, *WAYS))
        self.trace.append(way)
        if way in WAYS:
            self.catalog.way = way
        else:
            failpoints._POINTS = failpoints.parse(f"iceberg.{way}=1*raise(InjectedFault)")
        try:
            self.attempt()
        finally:
            self.catalog.way, failpoints._POINTS = "", {}
        self.publish()

    def meanwhile(self) -> None:
        """Runs another step between load and commit of a publication. Then publishes again."""
        other = self.random.choice((self.stream, self.merge, self.repair, self.strike))
        self.trace.append(other.__name__)
        self.catalog.before = other
        self.attempt()
        self.catalog.before = lambda: None
        self.publish()

    def gc(self) -> None:
        """Collects garbage, including objects that an earlier backup would need."""
        (report,) = run_gc(self.world.context, now=self.now).tables
        self.backup = None
        if report.problems:
            said = " ".join(map(str, report.problems))
            assert self.is_strange, (said, self.trace)
            assert "does not show the Iceberg table" in said, (said, self.trace)
            assert not report.deleted, self.trace
        self.garbage.update({reason: item.objects for reason, item in report.deleted.items()})
        if (loaded := self.loaded()) is not None:
            self._judge_files(loaded)

    def back_up(self) -> None:
        """Keeps the present state of PostgreSQL."""
        with self.world.context.database.begin() as connection:
            for name in (*_RECORDS, *_OF_CATALOG):
                connection.exec_driver_sql(f"DELETE FROM kept_{name}; INSERT INTO kept_{name} SELECT * FROM {name}")
        days = {day: replace(known, small=list(known.small)) for day, known in self.days.items()}
        loaded = self.loaded()
        self.backup = Backup(days, loaded.table_uuid if loaded else None, self.is_strange)

    def restore(self) -> None:
        """Restores PostgreSQL from the backup, with or without its catalog, which may be elsewhere.

        Sequences keep their values, as operators are told to set them. Lengths repaired since are repaired again.
        """
        backup, self.backup = self.backup, None
        if backup is None:
            return
        loaded = self.loaded()
        is_another = (loaded.table_uuid if loaded else None) != backup.table_uuid
        both = is_another or self.random.random() < 0.5
        names = (*_RECORDS, *_OF_CATALOG) if both else _RECORDS
        with self.world.context.database.begin() as connection:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            for name in names:
                kept = f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{name}"
                connection.exec_driver_sql(f"DELETE FROM {name}; {kept}")
        self.trace.append("both" if both else "without the catalog")
        self.days = dict(backup.days)
        self.forgotten |= self.repaired - {item.url for known in self.days.values() for item in known.small}
        self.is_strange = backup.is_strange or (self.is_strange and not both)
        for known in self.days.values():
            for number, item in enumerate(known.small):
                if item.content_length != self.lengths[item.url]:
                    self._repair(known, number, self.lengths[item.url])

    def loaded(self) -> LoadedTable | None:
        return self.world.context.iceberg.load(self.table)

    # Commits of others.

    def strike(self) -> None:
        """Somebody else commits something."""
        loaded = self.loaded()
        if loaded is None or loaded.snapshot_id is None:
            return
        act = self.random.choice((self._append, self._rewrite, self._delete, self._drop, self._expire, self._tag))
        self.trace.append(act.__name__)
        act(loaded.table)
        self.is_strange = True

    def _strange_file(self, day: date, rows: int = 3) -> DataFile:
        number = next(self._numbers)
        url = f"s3://lake/{self.keys.iceberg_prefix}data/{number}.parquet"
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=url,
            file_format=FileFormat.PARQUET,
            partition=Record((day - EPOCH).days),
            record_count=rows,
            file_size_in_bytes=99,
        )
        file.spec_id = 0
        self._note(url, 99, frozenset({-number}))
        return file

    def _append(self, table: Table) -> None:
        """Appends rows of two days in one manifest. One of the days may have no partition."""
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for day in (DAYS[0], self.random.choice((*DAYS[1:], date(2031, 3, 20)))):
                append.append_data_file(self._strange_file(day))

    def _files(self, table: Table) -> list[DataFile]:
        return [task.file for task in table.scan().plan_files()]

    def _rewrite(self, table: Table) -> None:
        """Some files become one."""
        files = self._files(table)
        chosen = self.random.sample(files, self.random.randint(1, len(files)))
        day = EPOCH + timedelta(days=chosen[0].partition[0])
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            for file in chosen:
                overwrite.delete_data_file(file)
            overwrite.append_data_file(self._strange_file(day, sum(file.record_count for file in chosen)))

    def _delete(self, table: Table) -> None:
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            overwrite.delete_data_file(self.random.choice(self._files(table)))

    def _drop(self, table: Table) -> None:
        self.catalog.drop_table(table.name())

    def _expire(self, table: Table) -> None:
        table.maintenance.expire_snapshots().older_than(self.now + timedelta(days=400)).commit()

    def _tag(self, table: Table) -> None:
        chosen = self.random.choice(table.metadata.snapshots)
        table.manage_snapshots().create_tag(chosen.snapshot_id, f"t{next(self._numbers)}").commit()

    # Invariants.

    def judge(self) -> None:
        """Checks that the head has every row once, in the right objects, and that each retained snapshot of ours is
        readable.
        """
        loaded = self.loaded()
        assert loaded is not None, self.trace
        head = self._listed(loaded, loaded.snapshot_id).files
        wanted = Counter(
            (item.url, self.lengths[item.url])
            for known in self.days.values()
            for item in (*known.ranges, *known.unmerged)
        )
        assert head == wanted, (head - wanted, wanted - head, self.trace)
        rows = Counter(number for url, _ in head.elements() for number in self.rows[url])
        streamed = {number for known in self.days.values() for item in known.small for number in self.rows[item.url]}
        assert rows == Counter(streamed), self.trace
        self._judge_files(loaded)
        self._judge_records(loaded)
        for snapshot in loaded.snapshots:
            if not snapshot.is_ours:
                continue
            listed = self._listed(loaded, snapshot.snapshot_id)
            assert max(Counter(url for url, _ in listed.files.elements()).values(), default=1) == 1, self.trace
            if snapshot.snapshot_id not in loaded.referenced:
                lengths = ((url, length) for url, length in listed.files if url not in self.forgotten)
                wrong = [(url, length) for url, length in lengths if self.lengths[url] != length]
                assert not wrong, (snapshot.snapshot_id, wrong, self.trace)

    def _judge_files(self, loaded: LoadedTable) -> None:
        """Checks that each retained snapshot, of any writer, has all its files."""
        there = self._present()
        for snapshot in loaded.snapshots:
            listed = self._listed(loaded, snapshot.snapshot_id)
            assert listed.paths <= there, (snapshot.snapshot_id, listed.paths - there, self.trace)

    def _present(self) -> set[str]:
        """Returns the addresses of all existing files of the table."""
        root = f"s3://lake/{self.keys.root}"
        start = len(str(self.folder)) + 1
        return {root + f"{folder}/{name}"[start:] for folder, _, names in os.walk(self.folder) for name in names}

    def _listed(self, loaded: LoadedTable, snapshot_id: int | None) -> Listed:
        """Returns the files of a snapshot. Lists and manifests never change, so each is read once."""
        snapshot = loaded.table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        if snapshot is None:
            return Listed(Counter(), frozenset())
        if snapshot.manifest_list not in self._lists:
            manifests = snapshot.manifests(loaded.table.io)
            files: Counter[tuple[str, int]] = Counter()
            for manifest in manifests:
                files += self._files_of(manifest, loaded.table.io)
            own = frozenset([snapshot.manifest_list, *(item.manifest_path for item in manifests)])
            self._lists[snapshot.manifest_list] = Listed(files, own)
        return self._lists[snapshot.manifest_list]

    def _files_of(self, manifest: ManifestFile, io: FileIO) -> Counter[tuple[str, int]]:
        if manifest.manifest_path not in self._manifests:
            files = [entry.data_file for entry in manifest.fetch_manifest_entry(io)]
            found = Counter((item.file_path, item.file_size_in_bytes) for item in files)
            self._manifests[manifest.manifest_path] = found
        return self._manifests[manifest.manifest_path]

    def _judge_records(self, loaded: LoadedTable) -> None:
        with self.world.context.database.begin() as connection:
            known = iceberg_tables.load_known_tables(connection, [self.table.table_id])[self.table.table_id]
            dirty = iceberg_tables.count_dirty_days(connection, [self.table.table_id])
        assert (known.snapshot_id, known.state, dirty) == (loaded.snapshot_id, ACTIVE, {}), self.trace


@dataclass(frozen=True)
class Played:
    """The number of checked publications, and the numbers of deletions by reason."""

    publications: int
    garbage: Counter[str]


def played(world: World, seeds: Iterable[int], steps: int) -> Played:
    """Plays a sequence for each seed, all on one database."""
    made: list[WilfulCatalog] = []

    def wilful(inner: Catalog) -> WilfulCatalog:
        made.append(WilfulCatalog(inner))
        return made[0]

    ours = with_iceberg(world, wilful)
    assert ours.context.iceberg.catalog is not None
    with world.context.database.begin() as connection:
        for name in (*_RECORDS, *_OF_CATALOG):
            connection.exec_driver_sql(f"CREATE UNLOGGED TABLE IF NOT EXISTS kept_{name} (LIKE {name})")
    publications, garbage = 0, Counter[str]()
    try:
        for seed in seeds:
            sequence = AnyOrder(ours, made[0], seed)
            sequence.play(steps)
            publications += sequence.publications
            garbage += sequence.garbage
    finally:
        made[0].inner.engine.dispose()
    return Played(publications, garbage)
