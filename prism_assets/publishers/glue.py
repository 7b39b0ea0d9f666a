"""AWS Glue, with manifests for Redshift Spectrum, or with symlinks for Athena, Trino and Hive.

An open partition is the live prefix, which readers list. All others are one list of objects under a key that is never
used for anything else, so that readers of the one before go on reading it. No table serves both kinds of readers: the
manifest is Redshift's own, and Redshift takes symlinks only below the folder of the table. So each has a database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import date

from prism_assets.domain.errors import InvariantBroken, ObjectMissing, PrismError
from prism_assets.domain.files import PartitionContent
from prism_assets.domain.names import TableName
from prism_assets.domain.partitions import GLUE, SYMLINK, Publication
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.base import UNOBSERVED, CallObserver, NamedObject
from prism_assets.publishers.file_lists import MANIFESTS, SYMLINKS, FileLists
from prism_assets.publishers.glue_catalog import GlueCatalog

_READS = 8


class GluePublisher:
    """Lists of objects in the lake, and partitions of Glue that point at them."""

    name = GLUE
    _lists: FileLists = MANIFESTS

    def __init__(self, catalog: GlueCatalog, lake: Lake, stores: Stores) -> None:
        self.catalog = catalog
        self._lake = lake
        self._stores = stores

    @property
    def longest_call_seconds(self) -> float:
        """That of the service's client."""
        return self.catalog.longest_call_seconds

    def differs(self, table: TableDefinition) -> bool:
        """One call for each name."""
        return any(self.catalog.differs(shown, self._root(table)) for shown in _by_name(table))

    def define(self, table: TableDefinition, observer: CallObserver = UNOBSERVED) -> str | None:
        """Database, table and columns."""
        done = [self.catalog.define(shown, self._root(table), observer) for shown in _by_name(table)]
        return next(filter(None, done), None)

    def remove(self, table: TableDefinition, name: TableName, observer: CallObserver = UNOBSERVED) -> None:
        """Deletes the table of that name in Glue, and its partitions there with it."""
        self.catalog.remove(replace(table, name=name), observer)

    def location(self, table: TableDefinition, day: date, publication: Publication) -> str:
        """The live prefix, or the list."""
        key = self.list_key(table, day, publication)
        return self._lake.url(self._lists.location(key) if key else self._lake.keys(table).live_prefix(day))

    def outdated(self, table: TableDefinition, publications: Mapping[date, Publication]) -> frozenset[date]:
        """Asks Glue for the partitions."""
        locations = {day: self.location(table, day, publication) for day, publication in publications.items()}
        if not locations:
            return frozenset()
        return frozenset().union(*(self.catalog.outdated(shown, locations) for shown in _by_name(table)))

    def publish(
        self, table: TableDefinition, contents: Mapping[date, PartitionContent], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Writes the lists, then points Glue at them and reads back. A damaged day does not keep back the others.

        A death behind a list leaves a key that nothing names, behind the call a record that lags: the next run
        publishes the same again.
        """
        failed: dict[date, PrismError] = {}
        locations: dict[date, str] = {}
        for day, content in contents.items():
            failpoint("catalog.before_manifest")
            try:
                self._write_list(table, day, content)
            except (InvariantBroken, ObjectMissing) as error:
                failed[day] = error
            else:
                locations[day] = self.location(table, day, content.publication)
        failpoint("catalog.after_manifest")
        for shown in _by_name(table) if locations else ():
            failed |= self.catalog.publish(shown, locations, observer)
        return failed

    def withdraw(
        self, table: TableDefinition, days: Collection[date], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Deletes the partitions in Glue; what they name stays."""
        failed: dict[date, PrismError] = {}
        for shown in _by_name(table):
            failed |= self.catalog.withdraw(shown, days, observer)
        return failed

    def shown_locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """As Glue has them."""
        return self.catalog.shown_locations(table, days)

    def needed_keys(self, table: TableDefinition, days: Collection[date]) -> frozenset[str]:
        """The live prefixes, or the lists with all that they name, that Glue has now. Reads these lists."""
        places: list[str] = []
        for name in _by_name(table):
            with suppress(InvariantBroken):  # Glue has no such table: readers are sent nowhere
                places += self.shown_locations(name, days).values()
        shown = [self._key_of(place) for place in places]
        lists = {key for place in shown if (key := self._lists.key_at(place))}
        with ThreadPoolExecutor(_READS) as pool:
            return frozenset(shown).union(lists, *pool.map(self._named_by, lists))

    def list_key(self, table: TableDefinition, day: date, publication: Publication) -> str | None:
        """The object that names those of a day; None of a live prefix, whose readers list it."""
        if publication.is_live_prefix:
            return None
        return self._lists.key(self._lake.keys(table), day, publication)

    def read_list(self, key: str) -> list[NamedObject]:
        """What a list names; ObjectMissing if it is not there, InvariantBroken if it is none."""
        return self._lists.read(self._stores.get(self._lake.bucket, key))

    def _named_by(self, key: str) -> set[str]:
        return {self._key_of(file.url) for file in self.read_list(key)}

    def _key_of(self, url: str) -> str:
        return url.removeprefix(self._lake.url(""))

    def _root(self, table: TableDefinition) -> str:
        return self._lake.url(self._lake.keys(table).root)

    def _write_list(self, table: TableDefinition, day: date, content: PartitionContent) -> None:
        """Writes the list after every object it names was seen with the length on record, and sees it in its place.

        Its key is never reused for other content: the version, the last object id and the revision in it decide that.
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
    """The same with lists of symlinks, for the tables of another database of Glue."""

    name = SYMLINK
    _lists: FileLists = SYMLINKS


def _by_name(table: TableDefinition) -> list[TableDefinition]:
    """The table under each name that Glue shows: to rename there is to delete and create, with readers in between."""
    return [table, *(replace(table, name=name) for name in table.former)]
