"""AWS Glue, with manifests for Redshift Spectrum or symlinks for Athena, Trino and Hive.

An open partition's location is the live prefix, and readers list it. Any other partition points at one list of objects.
List keys are never reused, so readers of the previous list can go on. No table serves both kinds of readers: manifests
are Redshift's own, and Redshift accepts symlinks only below the table's folder. Therefore each kind has its database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import date

from prism_assets.domain.days.partitions import GLUE, SYMLINK, Publication
from prism_assets.domain.errors import InvariantBroken, ObjectMissing, PrismError
from prism_assets.domain.files.data_file import PartitionContent
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.base import UNOBSERVED, CallObserver, NamedObject
from prism_assets.publishers.file_lists import MANIFESTS, SYMLINKS, FileLists
from prism_assets.publishers.glue_catalog import GlueCatalog

_READS = 8
_LISTS = 8
"""Lists written at once. The client of S3 keeps ten connections."""


class GluePublisher:
    """Writes object lists into the lake, and points Glue partitions at them."""

    name = GLUE
    _lists: FileLists = MANIFESTS

    def __init__(self, catalog: GlueCatalog, lake: Lake, stores: Stores) -> None:
        self.catalog = catalog
        self._lake = lake
        self._stores = stores

    @property
    def longest_call_seconds(self) -> float:
        """The limit of the Glue client."""
        return self.catalog.longest_call_seconds

    def differs(self, table: TableDefinition) -> bool:
        """Makes one call for each table name."""
        return any(self.catalog.differs(shown, self._root(table)) for shown in _by_name(table))

    def differing(self, tables: Sequence[TableDefinition]) -> frozenset[int]:
        """Makes one call for each table name, or lists the databases of many tables."""
        shown = [(one, self._root(table)) for table in tables for one in _by_name(table)]
        return self.catalog.differing(shown)

    def define(self, table: TableDefinition, observer: CallObserver = UNOBSERVED) -> str | None:
        """Defines database, table and columns under every name."""
        done = [self.catalog.define(shown, self._root(table), observer) for shown in _by_name(table)]
        return next(filter(None, done), None)

    def remove(self, table: TableDefinition, name: TableName, observer: CallObserver = UNOBSERVED) -> None:
        """Deletes the Glue table of that name, and its partitions with it."""
        self.catalog.remove(replace(table, name=name), observer)

    def location(self, table: TableDefinition, day: date, publication: Publication) -> str:
        """Returns the live prefix or the list."""
        key = self.list_key(table, day, publication)
        return self._lake.url(self._lists.location(key) if key else self._lake.keys(table).live_prefix(day))

    def outdated(self, table: TableDefinition, publications: Mapping[date, Publication]) -> frozenset[date]:
        """Asks Glue for the partitions."""
        locations = {day: self.location(table, day, publication) for day, publication in publications.items()}
        if not locations:
            return frozenset()
        return frozenset().union(*(self.catalog.outdated(shown, locations) for shown in _by_name(table)))

    def publish(
        self,
        table: TableDefinition,
        contents: Mapping[date, PartitionContent],
        observer: CallObserver = UNOBSERVED,
        recorded: Collection[date] | None = None,
    ) -> dict[date, PrismError]:
        """Writes the lists, points Glue at them and reads back. A damaged day does not block other days.

        A death after a list leaves an unreferenced key. A death after the Glue call leaves an outdated record. The next
        run publishes the same content again in both cases.
        """
        failed = self._write_lists(table, contents)
        failpoint("catalog.after_manifest")
        shown = {day: content.publication for day, content in contents.items() if day not in failed}
        locations = {day: self.location(table, day, publication) for day, publication in shown.items()}
        for named in _by_name(table) if locations else ():
            failed |= self.catalog.publish(named, locations, observer, recorded)
        return failed

    def withdraw(
        self, table: TableDefinition, days: Collection[date], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Deletes partitions in Glue, and no object."""
        failed: dict[date, PrismError] = {}
        for shown in _by_name(table):
            failed |= self.catalog.withdraw(shown, days, observer)
        return failed

    def shown_locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Asks Glue."""
        return self.catalog.shown_locations(table, days)

    def needed_keys(self, table: TableDefinition, days: Collection[date]) -> frozenset[str]:
        """Returns live prefixes, lists, and all objects in those lists, from Glue's current partitions."""
        places: list[str] = []
        for name in _by_name(table):
            with suppress(InvariantBroken):  # Glue has no such table, so no reader is sent anywhere
                places += self.shown_locations(name, days).values()
        shown = [self._key_of(place) for place in places]
        lists = {key for place in shown if (key := self._lists.key_at(place))}
        with ThreadPoolExecutor(_READS) as pool:
            return frozenset(shown).union(lists, *pool.map(self._named_by, lists))

    def list_key(self, table: TableDefinition, day: date, publication: Publication) -> str | None:
        """Returns the key of a day's list, or None for the live prefix, because readers list it themselves."""
        if publication.is_live_prefix:
            return None
        return self._lists.key(self._lake.keys(table), day, publication)

    def read_list(self, key: str) -> list[NamedObject]:
        """Reads a list. Raises ObjectMissing if it does not exist, InvariantBroken if its body is no list."""
        return self._lists.read(self._stores.get(self._lake.bucket, key))

    def _named_by(self, key: str) -> set[str]:
        return {self._key_of(file.url) for file in self.read_list(key)}

    def _key_of(self, url: str) -> str:
        return url.removeprefix(self._lake.url(""))

    def _root(self, table: TableDefinition) -> str:
        return self._lake.url(self._lake.keys(table).root)

    def _write_lists(self, table: TableDefinition, contents: Mapping[date, PartitionContent]) -> dict[date, PrismError]:
        """Writes the lists of days, some at once. Returns the errors of damaged days.

        Any other error is of the surroundings. It starts no further list, so a store that does not answer is waited
        for once.
        """
        failed: dict[date, PrismError] = {}
        with ThreadPoolExecutor(_LISTS) as pool:
            begun = {}
            for day, content in contents.items():
                failpoint("catalog.before_manifest")
                begun[day] = pool.submit(self._write_list, table, day, content)
            try:
                for day, written in begun.items():
                    try:
                        written.result()
                    except (InvariantBroken, ObjectMissing) as error:
                        failed[day] = error
            finally:
                pool.shutdown(cancel_futures=True)
        return failed

    def _write_list(self, table: TableDefinition, day: date, content: PartitionContent) -> None:
        """Checks that every object exists with its recorded length, then writes the list and lists its folder.

        The key contains version, last object id and revision, so it is never reused for other content.
        """
        key = self.list_key(table, day, content.publication)
        if key is None:
            return
        found = dict(self._listed({file.key.rpartition("/")[0] + "/" for file in content.files}))
        for file in content.files:
            length = found.get(file.key)
            if length != file.content_length:
                state = "is missing" if length is None else f"has {length} bytes"
                raise InvariantBroken(
                    f"{file.url} {state}, not {file.content_length} bytes; {table.name} is not published"
                )
        body = self._lists.write(content.files)
        self._stores.put(self._lake.bucket, key, body)
        folder = self._lists.location(key)
        if folder != key and dict(self._listed({folder})) != {key: len(body)}:
            raise InvariantBroken(
                f"{self._lake.url(folder)} does not hold its list of objects alone, so readers would find others: "
                f"remove what is not {key}; {table.name} is not published"
            )

    def _listed(self, folders: Collection[str]) -> Iterator[tuple[str, int]]:
        for folder in sorted(folders):
            for item in self._stores.list(self._lake.bucket, folder):
                yield item.key, item.content_length


class SymlinkPublisher(GluePublisher):
    """Publishes lists of symlinks for tables of a second Glue database."""

    name = SYMLINK
    _lists: FileLists = SYMLINKS


def _by_name(table: TableDefinition) -> list[TableDefinition]:
    """Returns the table under each name shown by Glue.

    Glue cannot rename a table. Deleting and creating it would break readers in between, so Glue shows both names for a
    while.
    """
    return [table, *(replace(table, name=name) for name in table.former)]
