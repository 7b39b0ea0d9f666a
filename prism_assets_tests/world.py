"""A whole platform for one test, with a reader that checks it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from prism_assets.engine.inprocess import InProcessEngine
from prism_assets.metadata.days import retention
from prism_assets.metadata.days.retention import RetentionMark
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.platform import build_context
from prism_assets.publishers.glue import GluePublisher, SymlinkPublisher
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.reading.lake_reader import LakeReader, ReadPartition
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings
from prism_assets.stages.apply.plan import ApplyPlan
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.idle import look_first
from prism_assets.stages.catalog.report import CatalogReport, TableReport
from prism_assets.stages.catalog.run import run_catalog, run_table
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import DiscoverReport, run_discover
from prism_assets.stages.iceberg.report import IcebergReport
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.merge.report import MergeReport
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.status import PartitionStatus, read_status
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import as_lines, utc, zipped

_NUMBERS = itertools.count(1)


@dataclass
class World:
    """Real PostgreSQL, buckets as folders, the in-process engine, and Glue; commands as the command line has them."""

    root: Path
    settings: Settings
    context: StageContext
    dropped: Counter[str] = field(default_factory=Counter)

    @classmethod
    def create(cls, root: Path, database_url: str, glue_endpoint: str, **overrides: Any) -> World:
        """Makes the buckets and a context; no table yet."""
        for bucket in ("lake", "staging"):
            (root / "buckets" / bucket).mkdir(parents=True, exist_ok=True)
        settings = Settings(
            database_url=database_url,
            bucket="lake",
            local_root=str(root / "buckets"),
            glue_endpoint=glue_endpoint,
            spark_remote="in-process",
            tables_dir=root / "tables",
            **{"glue_database_prefix": f"w{next(_NUMBERS)}_", "lease_seconds": 10, **overrides},
        )
        return cls(root, settings, build_context(settings))

    def in_bucket(self, endpoint: str, bucket: str) -> World:
        """Returns the same platform with its lake under `lake/` in a bucket of an S3 server, before the first apply."""
        lake = Lake(bucket, "lake/", StoreConfig(endpoint=endpoint, object_tags=False))
        stores = Stores(lake.store)
        publisher = GluePublisher(self.glue, lake, stores)
        symlink = SymlinkPublisher(self.symlinks, lake, stores)
        engine = InProcessEngine(lake)
        context = replace(
            self.context, lake=lake, stores=stores, engine=engine, publisher=publisher, symlink_publisher=symlink
        )
        return replace(self, context=context)

    @property
    def glue(self) -> GlueCatalog:
        """The catalog itself, for changes unknown to the publisher."""
        assert isinstance(self.context.publisher, GluePublisher)
        return self.context.publisher.catalog

    @property
    def symlinks(self) -> GlueCatalog:
        """The catalog with symlink tables."""
        assert isinstance(self.context.symlink_publisher, SymlinkPublisher)
        return self.context.symlink_publisher.catalog

    def close(self) -> None:
        """Closes connections."""
        self.context.database.dispose()

    def apply(self, *table_files: str, now: str = "2026-03-01T00:00", accept_failing_reads: bool = False) -> ApplyPlan:
        """Writes table files and applies them."""
        folder = self.settings.tables_dir
        folder.mkdir(exist_ok=True)
        for text in table_files:
            name = next(line for line in text.splitlines() if line.startswith("table:")).split()[1]
            (folder / f"{name}.yaml").write_text(text)
        return run_apply(self.context, folder, utc(now), accept_failing_reads=accept_failing_reads)

    def drop(self, rows: Sequence[Any], *, stream: str = "events", body: bytes | None = None, name: str = "") -> str:
        """Puts one staging object. Returns its key."""
        self.dropped[stream] += 1
        key = f"{stream}/2026/{name or self.dropped[stream]:>06}.gz"
        path = self.root / "buckets" / "staging" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zipped(as_lines(rows)) if body is None else body)
        return key

    def discover(self, now: str) -> DiscoverReport:
        """`prism discover`."""
        return run_discover(self.context, now=utc(now))

    def stream(self, now: str) -> StreamReport:
        """`prism discover` and `prism stream`."""
        self.discover(now)
        return run_stream(self.context, now=utc(now))

    def merge(self, now: str, *, everything: bool = False) -> MergeReport:
        """`prism merge`."""
        return run_merge(self.context, now=utc(now), ignore_schedule=everything)

    def catalog(self, now: str, *, republish: bool = False) -> CatalogReport:
        """`prism catalog`; fails the test on any error."""
        report = run_catalog(self.context, now=utc(now), republish=republish)
        assert report.errors == ()
        return report

    def catalog_and_idle(self, now: str) -> CatalogReport:
        """`prism catalog`, then a run of each table that it left out: the run finds no work either, and says as much.

        Reports have no trace of the marks of retentions, so these are compared, too.
        """
        tables = {table.table_id: table for table in self.context.choose_with_dropped(None)}
        idle = look_first(self.context, tables.values(), utc(now)).idle
        report = self.catalog(now)
        said = {item.table_id: item for item in report.tables}
        marks = self._retention_marks(idle)
        for number, waiting in idle.items():
            found = run_table(self.context, tables[number], now=utc(now))
            alone = TableReport(table=str(tables[number].name), table_id=number, waiting=waiting)
            assert found == said[number] == alone, "a table was left out"
        assert self._retention_marks(idle) == marks, "a mark of a table was left where it was"
        return report

    def _retention_marks(self, table_ids: Collection[int]) -> dict[int, RetentionMark]:
        with self.context.database.begin() as connection:
            return retention.load_marks(connection, table_ids)

    def iceberg(self, now: str, **options: Any) -> IcebergReport:
        """`prism iceberg publish`, whenever the last commit was; fails the test on any error."""
        report = run_iceberg(self.context, now=utc(now), **{"ignore_pace": True, **options})
        assert report.errors == ()
        return report

    def iceberg_table(self, table: str = "log.events") -> Table:
        """Loads the Iceberg table as a client does."""
        with IcebergReader(self.settings) as reader:
            return reader.table(table)

    def iceberg_ids(self, table: str = "log.events") -> list[int]:
        """Returns all ids of the Iceberg table's head, sorted, with doubles."""
        return sorted(self.iceberg_table(table).scan().to_arrow().column("id").to_pylist())

    def reader(self) -> LakeReader:
        """A reader of the catalog."""
        return LakeReader(self.settings)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """`prism query`, with `{}` for the prefix of the test's databases."""
        return list(run_query(self.reader(), sql).rows)

    def ids(self, table: str = "log.events") -> list[int]:
        """All ids a reader sees, sorted, doubles included."""
        return sorted(row[0] for row in self.query(f"SELECT id FROM {table}"))

    def partition(self, day: str, table: str = "log.events") -> ReadPartition:
        """Returns one partition as seen by a reader."""
        found = self.reader().table(table, date.fromisoformat(day)).partitions
        assert len(found) == 1
        return found[0]

    def status(self, day: str, now: str, table: str = "log.events") -> PartitionStatus:
        """`prism status` of one partition."""
        found = read_status(self.context, now=utc(now), names=[table], day=date.fromisoformat(day))
        return found[0].partitions[0]

    def at(self, now: str) -> datetime:
        """An instant."""
        return utc(now)
