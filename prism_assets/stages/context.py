"""The context shared by every stage: database, store, engine, publisher and settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from prism_assets.domain.batch_size import BatchSize, batch_size
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.names import OtherNames
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.installation import Installation
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drafted_parts import DraftedField
from prism_assets.domain.tables.drift import SeenField
from prism_assets.engine.base import Engine
from prism_assets.kafka.cluster import KafkaClusters
from prism_assets.metadata.database import Database, worker_name
from prism_assets.metadata.days import catalog_state
from prism_assets.metadata.tables import former_names, tables
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.base import Publisher
from prism_assets.queues.sqs import SqsQueue
from prism_assets.settings import Settings
from prism_assets.stages.installation import check_lake

if TYPE_CHECKING:
    from prism_assets.publishers.iceberg.publisher import IcebergPublisher


def _silent(_message: str) -> None:
    """Ignores progress."""


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """The resources of a stage. Engine, publishers and queues open nothing before their first use."""

    settings: Settings
    database: Database
    lake: Lake
    stores: Stores
    engine: Engine
    publisher: Publisher
    """Shows every table. `for_catalogs` gives a context for each publisher of a table, which then stands here."""
    symlink_publisher: Publisher
    """Shows the tables whose files ask for symlinks."""
    make_iceberg: Callable[[str], IcebergPublisher]
    check_expressions: Callable[[TableDefinition], Sequence[str]]
    """Returns problems of a table file's SQL expressions, a line each."""
    draft_columns: Callable[[TableDefinition, Sequence[SeenField]], Sequence[Column]]
    """Returns columns for undefined fields of a table's lines."""
    draft_fields: Callable[[TableDefinition, Sequence[SeenField]], Sequence[DraftedField]]
    """Returns fields for undefined keys inside structs of a table's lines."""
    make_erasure_rule: Callable[[TableDefinition, str, OtherNames], ErasureRule]
    """Makes a rule of a predicate over columns of a table, or raises WrongUse."""
    queues: tuple[SqsQueue, ...] = ()
    kafka: KafkaClusters = field(default_factory=KafkaClusters)
    """The clusters of topics, by the environment."""
    progress: Callable[[str], None] = _silent
    worker: str = field(default_factory=worker_name)

    @property
    def batch_size(self) -> BatchSize:
        """The size of the next batch, by the slots that the engine had at its last job."""
        settings = self.settings
        most = BatchSize(
            objects=settings.stream_max_objects, bytes=settings.stream_max_bytes, merges=settings.merge_max_jobs
        )
        return batch_size(self.engine.slots, settings.task_bytes, most)

    @cached_property
    def iceberg(self) -> IcebergPublisher:
        """The publisher of this installation. Made at first use, because its library is slow to import."""
        return self.make_iceberg(self.installation.installation_id)

    @cached_property
    def installation(self) -> Installation:
        """The shared identity of database and lake. Checked once, because settings of a process stay fixed."""
        return check_lake(self.database, self.lake, self.stores)

    def check_lake(self) -> None:
        """Raises WrongLake if database and lake do not belong together. Each stage calls it before its first work."""
        _ = self.installation

    def for_catalogs(self, tables: Collection[TableDefinition]) -> dict[int, tuple[StageContext, ...]]:
        """Returns, by table id, one context per publisher that may show the table, this one's first."""
        with self.database.begin() as connection:
            found = catalog_state.load_publishers(connection, [table.table_id for table in tables])
        return {number: self.of_publishers({self.publisher.name, *names}) for number, names in found.items()}

    def of_publishers(self, names: Collection[str]) -> tuple[StageContext, ...]:
        """Returns the contexts of the named publishers."""
        others = (self, replace(self, publisher=self.symlink_publisher))
        return tuple(context for context in others if context.publisher.name in names)

    def choose_tables(self, names: Collection[str] | None) -> list[TableDefinition]:
        """Returns the current definitions of the named tables (`schema.table`), or of all. Raises WrongUse for an
        unknown name.

        Tables in a drop do not count.
        """
        found = self.choose_with_dropped(names)
        dropped = [str(table.name) for table in found if table.dropped]
        if dropped and names is not None:
            raise WrongUse(f"{', '.join(dropped)} is being dropped: `prism status` says how far that is")
        return [table for table in found if not table.dropped]

    def choose_with_dropped(self, names: Collection[str] | None) -> list[TableDefinition]:
        """Returns the same, including tables in a drop. For stages that remove them from catalogs and delete their
        objects.
        """
        with self.database.begin() as connection:
            found = former_names.with_former_names(connection, tables.load_definitions(connection))
            known = {str(table.name): table for table in found}
        if names is None:
            return list(known.values())
        unknown = sorted(set(names) - set(known))
        if unknown:
            have = ", ".join(known) or "none; run `prism table apply`"
            raise WrongUse(f"there is no table {', '.join(unknown)} (there are: {have})")
        return [known[name] for name in sorted(set(names))]

    def choose_logs(self, names: Collection[str] | None) -> list[TableDefinition]:
        """Returns the tables fed by streams, of the named ones or of all. For a join table, the log of its changes.

        Raises WrongUse for an unknown name.
        """
        if names is not None:
            joins = {str(table.name): str(log_name(table.name)) for table in self.choose_tables(names) if table.join}
            names = [joins.get(name, name) for name in names]
        return [table for table in self.choose_tables(names) if table.join is None]

    def choose_version(self, name: str, version: int) -> TableDefinition:
        """Returns a stored definition of a table. Raises WrongUse for an unknown name or version."""
        (table,) = self.choose_tables([name])
        key = table.table_id, version
        with self.database.begin() as connection:
            found = tables.load_versions(connection, [key])
        if key not in found:
            raise WrongUse(f"{name} has no version {version}: the one in force is {table.version}")
        return found[key]

    def choose_ids(self, names: Collection[str] | None) -> list[int] | None:
        """Returns the ids of the named tables, or None for all. For a join table, the id of the log of its changes."""
        return None if names is None else [table.table_id for table in self.choose_logs(names)]
