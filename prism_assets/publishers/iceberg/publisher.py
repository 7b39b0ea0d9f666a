"""Publishes Iceberg tables over the lake's objects: loads, creates, registers, and commits.

A commit relies on the catalog's own comparison of the head with the loaded one, and is never retried. A lost answer is
settled by loading the table again, and a refused commit is planned again. PyIceberg's transactions are not used: after
a resent request they mistake their own committed files for leftovers and delete them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.exceptions import TableAlreadyExistsError as AlreadyExists
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from prism_assets.domain.errors import CatalogUnavailable, InvariantBroken, ObjectMissing
from prism_assets.domain.iceberg.snapshots import SnapshotChange
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.iceberg.avro import read_bounded
from prism_assets.publishers.iceberg.errors import translated
from prism_assets.publishers.iceberg.file_io import STORES, StoresFileIO, place_of
from prism_assets.publishers.iceberg.loaded import LoadedTable
from prism_assets.publishers.iceberg.manifests import ManifestProducer
from prism_assets.publishers.iceberg.optimizers import enabled_optimizers
from prism_assets.publishers.iceberg.schema import MARK, first_metadata, iceberg_schema, milliseconds

NAME = "iceberg"
_LOOKS = 50
"""How many metadata files are read, the newest first, after a catalog lost a table."""


class CommitRefused(CatalogUnavailable):
    """Another writer changed the head or the definition after the load. The caller plans the commit again."""


class MetadataMissing(ObjectMissing):
    """The catalog's metadata file is gone, so nobody can read the table. The caller creates the table again."""


@dataclass(frozen=True)
class Committed:
    """A commit visible to readers. `settled`: its answer was lost, and a second load found the commit."""

    loaded: LoadedTable
    snapshot_id: int | None
    settled: bool


class IcebergPublisher:
    """The tables of one catalog. Connects on first use and never reads the platform's metadata.

    `mark` is the installation's id. It is written to tables and snapshots, to tell them from foreign ones.
    """

    name = NAME

    def __init__(
        self,
        connect: Callable[[], Catalog],
        lake: Lake,
        stores: Stores,
        mark: str,
        *,
        prefix: str = "",
        suffix: str = "_iceberg",
    ) -> None:
        self._connect = connect
        self._mark = mark
        self._lake = lake
        self._files = StoresFileIO({STORES: stores})
        self._stores = stores
        self._prefix = prefix
        self._suffix = suffix

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, connected on first use."""
        with translated("connect to the Iceberg catalog"):
            return self._connect()

    def identifier(self, table: TableDefinition) -> tuple[str, str]:
        """Returns database and table. The database differs from Glue's, where the name is already taken."""
        return f"{self._prefix}{table.name.schema}{self._suffix}", table.name.table

    def location(self, table: TableDefinition) -> str:
        """Returns the folder of the table's metadata files. Foreign writers use it, too."""
        return self._lake.url(self._lake.keys(table).iceberg_prefix.rstrip("/"))

    def load(self, table: TableDefinition) -> LoadedTable | None:
        """Loads the table, or returns None if the catalog has no such table.

        Raises MetadataMissing if the catalog's metadata file does not exist.
        """
        try:
            with translated(f"load the Iceberg table of {table.name}"):
                return LoadedTable(self.catalog.load_table(self.identifier(table)), self._mark)
        except NoSuchTableError:
            return None
        except ObjectMissing as error:
            raise MetadataMissing(str(error)) from error

    def enabled_optimizers(self, table: TableDefinition) -> tuple[str, ...]:
        """Returns Glue's enabled optimizers of a table, with two calls. Other catalogs have none."""
        if not isinstance(self.catalog, GlueCatalog):
            return ()
        with translated(f"ask Glue for its optimizers of the Iceberg table of {table.name}"):
            return enabled_optimizers(self.catalog.glue, *self.identifier(table))

    def create(self, table: TableDefinition, now: datetime) -> LoadedTable:
        """Creates a table without a snapshot: writes the first metadata file, then registers it.

        A death in between leaves an unreferenced file. If another worker created the table meanwhile, returns that one.
        """
        location = self.location(table)
        address = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
        with translated(f"create the Iceberg table of {table.name}"):
            metadata = first_metadata(table, location, self._mark, now)
            ToOutputFile.table_metadata(metadata, self._files.new_output(address))
        failpoint("iceberg.after_first_metadata")
        return self.register(table, address)

    def register(self, table: TableDefinition, metadata_location: str) -> LoadedTable:
        """Registers a metadata file under the table's name. An existing table stays and is returned."""
        database, _ = self.identifier(table)
        with translated(f"register the Iceberg table of {table.name}"):
            with suppress(NamespaceAlreadyExistsError):
                self.catalog.create_namespace(database)
            with suppress(AlreadyExists):
                self.catalog.register_table(self.identifier(table), metadata_location)
        loaded = self.load(table)
        if loaded is None:
            raise CatalogUnavailable(f"the catalog does not show {database}.{table.name.table}, which was registered")
        return loaded

    def newest_metadata(self, table: TableDefinition, known_location: str, snapshot_id: int | None) -> str | None:
        """Returns the metadata file to register after a catalog lost the table, or None if none is left.

        Chooses the newest file with the given snapshot whose snapshots are all readable. After a restore of PostgreSQL,
        older metadata files may name deleted objects. The recorded file is the newest unless a record was lost.
        """
        keys = self._lake.keys(table)
        there = {item.key: item.last_modified for item in self._stores.list(keys.bucket, keys.root)}
        prefix = f"{keys.iceberg_prefix}metadata/"
        found = [key for key in there if key.startswith(prefix) and key.endswith(".metadata.json")]
        addresses = [self._lake.url(key) for key in sorted(found, key=lambda key: there[key], reverse=True)]
        for address in [*addresses[:_LOOKS], *(item for item in addresses[_LOOKS:] if item == known_location)]:
            try:
                with translated(f"read {address}"):
                    metadata = FromInputFile.table_metadata(self._files.new_input(address))
            except InvariantBroken:  # another writer's file
                continue
            has_snapshot = any(snapshot.snapshot_id == snapshot_id for snapshot in metadata.snapshots)
            if (address == known_location or has_snapshot) and self._can_be_read(table, address, metadata, there):
                return address
        return None

    def is_whole(self, table: TableDefinition, loaded: LoadedTable) -> bool:
        """Whether the table's folder has every file that retained snapshots need there. Lists the folder.

        Raises InvariantBroken if the metadata is there and cannot be read.
        """
        keys = self._lake.keys(table)
        there = {item.key for item in self._stores.list(keys.bucket, keys.root)}
        try:
            return self._has_all_files(table, loaded.metadata_location, loaded.table.metadata, there)
        except ObjectMissing:
            return False

    def _can_be_read(
        self, table: TableDefinition, address: str, metadata: TableMetadata, there: Collection[str]
    ) -> bool:
        """Whether the metadata can be read, and every file that it needs from the table's folder exists."""
        try:
            return self._has_all_files(table, address, metadata, there)
        except (ObjectMissing, InvariantBroken):
            return False

    def _has_all_files(
        self, table: TableDefinition, address: str, metadata: TableMetadata, there: Collection[str]
    ) -> bool:
        """Whether every file that retained snapshots need from the table's folder exists."""
        found = Table(self.identifier(table), metadata, address, self._files, self.catalog)
        with translated(f"read the snapshots of {address}"):
            places = {place_of(item) for item in LoadedTable(found, self._mark).files_of_snapshots(None)}
        keys = self._lake.keys(table)
        return all(key in there for bucket, key in places if bucket == keys.bucket and key.startswith(keys.root))

    def needed_keys(self, loaded: LoadedTable, days: Collection[date] | None) -> frozenset[str]:
        """Returns the keys retained snapshots need: data files of `days` or of all days, and metadata files."""
        with translated(f"read the snapshots of {loaded.identifier}"):
            addresses = loaded.needed_files(days)
        places = map(place_of, addresses)
        return frozenset(key for bucket, key in places if bucket == self._lake.bucket)

    def bounded_keys(self, key: str) -> frozenset[str]:
        """Returns the keys of data files with bounds in a manifest. Returns nothing for other Avro files.

        Erasures check every Avro file in the lake this way, unreferenced ones included. Raises ObjectMissing if the
        file is gone.
        """
        location = self._lake.url(key)
        with translated(f"read {location}"):
            places = map(place_of, read_bounded(self._files, location))
            return frozenset(named for bucket, named in places if bucket == self._lake.bucket)

    def metadata_bytes(self, loaded: LoadedTable) -> int:
        """Returns the length of the metadata file. Every reader fetches this file first."""
        with translated(f"look at {loaded.metadata_location}"):
            return len(self._files.new_input(loaded.metadata_location))

    def unregister(self, table: TableDefinition) -> None:
        """Removes the table from the catalog. Deletes no file."""
        with translated(f"unregister the Iceberg table of {table.name}"), suppress(NoSuchTableError):
            self.catalog.drop_table(self.identifier(table))

    def commit(
        self,
        table: TableDefinition,
        loaded: LoadedTable,
        change: SnapshotChange,
        now: datetime,
        before_call: Callable[[], None],
    ) -> Committed:
        """Commits the change if the loaded head is still the table's head.

        `before_call` runs right before the catalog call, and raises if nothing may be changed any more. Raises
        CommitRefused if another writer was first, whatever the call answered. Any other error is settled by loading the
        table again. If the commit is not there, the error is raised; the commit may still arrive, and the next commit's
        difference accounts for it.
        """
        with translated(f"write the manifests of {table.name}"):
            snapshot = self._snapshot(table, loaded, change, now) if change.makes_snapshot else None
        failpoint("iceberg.after_manifests")
        head_id = snapshot.snapshot_id if snapshot else loaded.snapshot_id
        updates = [
            *_schema_updates(table, loaded, change),
            *_snapshot_updates(snapshot),
            *_tag_updates(change, head_id),
        ]
        if change.expired:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=list(change.expired)))
        requirements = (
            AssertTableUUID(uuid=loaded.table.metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=loaded.snapshot_id),
        )
        before_call()
        failpoint("iceberg.before_commit")
        settled = False
        try:
            with translated(f"commit to the Iceberg table of {table.name}"):
                try:
                    self.catalog.commit_table(loaded.table, requirements, tuple(updates))
                except (CommitFailedException, NoSuchTableError) as error:
                    raise CommitRefused(f"{loaded.identifier}: {error}") from error
        except Exception as error:
            after = self.load(table)
            if snapshot is None or after is None or not _is_in(after, snapshot.snapshot_id):
                if after is None or after.metadata_location != loaded.metadata_location:
                    raise CommitRefused(f"{loaded.identifier} was changed meanwhile: {error}") from error
                raise
            settled = True
        failpoint("iceberg.after_commit")
        return self._read_back(table, loaded, change, snapshot, settled=settled)

    def _read_back(
        self,
        table: TableDefinition,
        before: LoadedTable,
        change: SnapshotChange,
        snapshot: Snapshot | None,
        *,
        settled: bool,
    ) -> Committed:
        """Loads the table again, because a catalog that misses a concurrent change accepts both commits."""
        after = self.load(table)
        if after is None or after.table_uuid != before.table_uuid:
            raise CommitRefused(f"{before.identifier} was dropped or replaced while it was committed to")
        taken = _shows(after, table, change) if snapshot is None else _is_in(after, snapshot.snapshot_id)
        if not taken:
            raise CommitRefused(f"{before.identifier}: the catalog took the commit and does not show it")
        return Committed(after, snapshot.snapshot_id if snapshot else before.snapshot_id, settled)

    def _snapshot(self, table: TableDefinition, loaded: LoadedTable, change: SnapshotChange, now: datetime) -> Snapshot:
        """Writes manifests and their list. Nobody reads them before the commit."""
        metadata = loaded.table.metadata
        snapshot_id = metadata.new_snapshot_id()
        sequence_number = loaded.last_sequence_number + 1
        schema = iceberg_schema(table, metadata.current_schema_id)
        folder = f"{self.location(table)}/metadata"
        producer = ManifestProducer(loaded.table.io, schema, folder, snapshot_id)
        changed = {day.date: day for day in change.changed_days}
        mixed: dict[date, list[ManifestEntry]] = {}
        kept: list[ManifestFile] = []
        if change.drops_mixed_manifests:
            mixed = loaded.mixed_entries()
        else:
            kept += loaded.mixed_manifests
        for day, manifests in loaded.day_manifests.items():
            if day not in changed:
                kept += [item for item in manifests if item.has_added_files() or item.has_existing_files()]
        for day, of_day in changed.items():
            kept += producer.manifests_of(of_day, loaded.day_manifests.get(day, ()), mixed.get(day, ()))
        address = producer.write_list(kept, loaded.snapshot_id, sequence_number)
        return Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=loaded.snapshot_id,
            sequence_number=sequence_number,
            timestamp_ms=max(milliseconds(now), metadata.last_updated_ms + 1),  # PyIceberg would take the current time
            manifest_list=address,
            summary=_summary(change, self._mark, kept),
            schema_id=_target_schema_id(table, loaded) if change.sets_schema else metadata.current_schema_id,
        )


def _shows(loaded: LoadedTable, table: TableDefinition, change: SnapshotChange) -> bool:
    """Whether a loaded table has the changes of a commit besides its snapshot: expired snapshots, tags and schema."""
    snapshots = {item.snapshot_id for item in loaded.snapshots}
    return (
        snapshots.isdisjoint(change.expired)
        and loaded.tags.issuperset(change.tags)
        and loaded.tags.isdisjoint(change.dropped_tags)
        and (not change.sets_schema or loaded.has_schema(table))
    )


def _is_in(loaded: LoadedTable, snapshot_id: int) -> bool:
    return any(item.snapshot_id == snapshot_id for item in loaded.ancestry)


def _target_schema_id(table: TableDefinition, loaded: LoadedTable) -> int:
    """Returns the id of an equal earlier schema, or the next free id."""
    schemas = loaded.table.metadata.schemas
    equal = [schema.schema_id for schema in schemas if schema == iceberg_schema(table, schema.schema_id)]
    return equal[0] if equal else max(schema.schema_id for schema in schemas) + 1


def _schema_updates(table: TableDefinition, loaded: LoadedTable, change: SnapshotChange) -> list[TableUpdate]:
    if not change.sets_schema:
        return []
    target = _target_schema_id(table, loaded)
    setting = SetCurrentSchemaUpdate(schema_id=target)
    if any(schema.schema_id == target for schema in loaded.table.metadata.schemas):
        return [setting]
    return [AddSchemaUpdate(schema_=iceberg_schema(table, target)), setting]


def _snapshot_updates(snapshot: Snapshot | None) -> list[TableUpdate]:
    if snapshot is None:
        return []
    head = SetSnapshotRefUpdate.model_validate(
        {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot.snapshot_id}
    )
    return [AddSnapshotUpdate(snapshot=snapshot), head]


def _tag_updates(change: SnapshotChange, head_id: int | None) -> list[TableUpdate]:
    setting = [
        SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": SnapshotRefType.TAG, "snapshot-id": head_id})
        for name in change.tags
        if head_id is not None
    ]
    return [*setting, *(RemoveSnapshotRefUpdate(ref_name=name) for name in change.dropped_tags)]


def _summary(change: SnapshotChange, mark: str, manifests: list[ManifestFile]) -> Summary:
    """Builds the snapshot summary with Iceberg's field names. Totals are counted, not carried forward."""
    days = change.changed_days
    counts = {
        "added-data-files": change.files_in,
        "added-records": change.rows_in,
        "added-files-size": sum(file.content_length for day in days for file in day.added),
        "deleted-data-files": change.files_out,
        "deleted-records": change.rows_out,
        "removed-files-size": sum(file.content_length for day in days for file in day.removed),
        "changed-partition-count": len(days),
    }
    totals = {
        "total-data-files": sum((item.added_files_count or 0) + (item.existing_files_count or 0) for item in manifests),
        "total-records": sum((item.added_rows_count or 0) + (item.existing_rows_count or 0) for item in manifests),
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
    }
    changes = {name: str(count) for name, count in counts.items() if count}
    return Summary(
        Operation(change.operation.value),
        **changes,
        **{name: str(count) for name, count in totals.items()},
        **{MARK: mark},
    )
