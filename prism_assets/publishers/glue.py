"""AWS Glue, with manifests: Redshift Spectrum, Athena, Trino and Spark read what it shows.

An open partition is the live prefix, which readers list. All others are one manifest under a key that is never used for
anything else, so that readers of the one before go on reading it.
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
from prism_assets.domain.partitions import Publication
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.manifests import read_manifest, write_manifest
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.base import UNOBSERVED, CallObserver
from prism_assets.publishers.glue_catalog import GlueCatalog

_READS = 8


class GluePublisher:
    """Manifests in the lake, and partitions of Glue that point at them."""

    name = "glue"

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
        """The live prefix, or the manifest."""
        key = self._manifest_key(table, day, publication)
        return self._lake.url(key or self._lake.keys(table).live_prefix(day))

    def outdated(self, table: TableDefinition, publications: Mapping[date, Publication]) -> frozenset[date]:
        """Asks Glue for the partitions."""
        locations = {day: self.location(table, day, publication) for day, publication in publications.items()}
        if not locations:
            return frozenset()
        return frozenset().union(*(self.catalog.outdated(shown, locations) for shown in _by_name(table)))

    def publish(
        self, table: TableDefinition, contents: Mapping[date, PartitionContent], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Writes the manifests, then points Glue at them and reads back. A damaged day does not keep back the others.

        A death behind a manifest leaves a key that nothing names, behind the call a record that lags: the next run
        publishes the same again.
        """
        failed: dict[date, PrismError] = {}
        locations: dict[date, str] = {}
        for day, content in contents.items():
            failpoint("catalog.before_manifest")
            try:
                self._write_manifest(table, day, content)
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
        """The live prefixes, or the manifests with all that they name, that Glue has now. Reads these manifests."""
        places: list[str] = []
        for name in _by_name(table):
            with suppress(InvariantBroken):  # Glue has no such table: readers are sent nowhere
                places += self.shown_locations(name, days).values()
        shown = [place.removeprefix(self._lake.url("")) for place in places]
        with ThreadPoolExecutor(_READS) as pool:
            named = pool.map(self._named_by, [key for key in shown if not key.endswith("/")])
            return frozenset(shown).union(*named)

    def _named_by(self, key: str) -> set[str]:
        entries = read_manifest(self._stores.get(self._lake.bucket, key))
        return {entry.url.removeprefix(self._lake.url("")) for entry in entries}

    def _root(self, table: TableDefinition) -> str:
        return self._lake.url(self._lake.keys(table).root)

    def _manifest_key(self, table: TableDefinition, day: date, publication: Publication) -> str | None:
        if publication.is_live_prefix:
            return None
        version, last, revision = publication.version, publication.published_object_id, publication.revision
        return self._lake.keys(table).manifest(day, version, last, revision)

    def _write_manifest(self, table: TableDefinition, day: date, content: PartitionContent) -> None:
        """Writes the manifest after every object it names was seen with the length it names. Its key is never reused
        for other content: the version, the last object id and the revision in it decide the content.
        """
        key = self._manifest_key(table, day, content.publication)
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
        self._stores.put(self._lake.bucket, key, write_manifest(content.files))

    def _listed(self, folders: Collection[str]) -> Iterator[tuple[str, int]]:
        for folder in sorted(folders):
            for item in self._stores.list(self._lake.bucket, folder):
                yield item.key, item.content_length


def _by_name(table: TableDefinition) -> list[TableDefinition]:
    """The table under each name that Glue shows: to rename there is to delete and create, with readers in between."""
    return [table, *(replace(table, name=name) for name in table.former)]
