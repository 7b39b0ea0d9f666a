"""What every stage works with: the database, the store, the engine, the publisher and the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from prism_assets.domain.change_log import log_name
from prism_assets.domain.column_names import OtherNames
from prism_assets.domain.columns import Column
from prism_assets.domain.drift import SeenField
from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.installation import Installation
from prism_assets.domain.tables import TableDefinition
from prism_assets.engine.base import Engine
from prism_assets.metadata import catalog_state, former_names, tables
from prism_assets.metadata.database import Database, worker_name
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.base import Publisher
from prism_assets.queues.sqs import SqsQueue
from prism_assets.settings import Settings
from prism_assets.stages.installation import check_lake

if TYPE_CHECKING:
    from prism_assets.publishers.iceberg.publisher import IcebergPublisher


def _silent(_message: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """Everything a stage needs. Engine, publishers and queues open nothing before they are used.

    `publisher` shows every table, `symlink_publisher` those whose files ask for it; `for_catalogs` gives a context for
    each, with it in the place of `publisher`, and so has what is done with one done with every one that shows a table.
    `check_expressions` says what is wrong with the SQL expressions of a table file, a line each; `draft_columns`
    gives columns for fields that lines of a table have; `make_erasure_rule` makes one of a predicate over columns of a
    table, or raises WrongUse.
    """

    settings: Settings
    database: Database
    lake: Lake
    stores: Stores
    engine: Engine
    publisher: Publisher
    symlink_publisher: Publisher
    make_iceberg: Callable[[str], IcebergPublisher]
    check_expressions: Callable[[TableDefinition], Sequence[str]]
    draft_columns: Callable[[TableDefinition, Sequence[SeenField]], Sequence[Column]]
    make_erasure_rule: Callable[[TableDefinition, str, OtherNames], ErasureRule]
    queues: tuple[SqsQueue, ...] = ()
    progress: Callable[[str], None] = _silent
    worker: str = field(default_factory=worker_name)

    @cached_property
    def iceberg(self) -> IcebergPublisher:
        """That of the installation. Made at its first use, as its library takes as long to import as all else."""
        return self.make_iceberg(self.installation.installation_id)

    @cached_property
    def installation(self) -> Installation:
        """What database and lake agree on; looked up once, as settings do not change while a process works."""
        return check_lake(self.database, self.lake, self.stores)

    def check_lake(self) -> None:
        """Called by each stage before its first work: WrongLake if database and lake do not belong together."""
        _ = self.installation

    def for_catalogs(self, tables: Collection[TableDefinition]) -> dict[int, tuple[StageContext, ...]]:
        """For each table, by id, this context for every publisher whose catalog may show it, the first one first."""
        with self.database.begin() as connection:
            found = catalog_state.load_publishers(connection, [table.table_id for table in tables])
        return {number: self.of_publishers({self.publisher.name, *names}) for number, names in found.items()}

    def of_publishers(self, names: Collection[str]) -> tuple[StageContext, ...]:
        """The context for each of some publishers."""
        others = (self, replace(self, publisher=self.symlink_publisher))
        return tuple(context for context in others if context.publisher.name in names)

    def choose_tables(self, names: Collection[str] | None) -> list[TableDefinition]:
        """The definitions in force of the tables named `schema.table`, or of all; WrongUse for an unknown name.

        Tables that are being dropped are none of them.
        """
        found = self.choose_with_dropped(names)
        dropped = [str(table.name) for table in found if table.dropped]
        if dropped and names is not None:
            raise WrongUse(f"{', '.join(dropped)} is being dropped: `prism status` says how far that is")
        return [table for table in found if not table.dropped]

    def choose_with_dropped(self, names: Collection[str] | None) -> list[TableDefinition]:
        """The same with those that are being dropped: for who takes them out of catalogs, and deletes their objects."""
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
        """The tables that streams feed, of those named or of all: for a join table the log of its changes.

        WrongUse for an unknown name.
        """
        if names is not None:
            joins = {str(table.name): str(log_name(table.name)) for table in self.choose_tables(names) if table.join}
            names = [joins.get(name, name) for name in names]
        return [table for table in self.choose_tables(names) if table.join is None]

    def choose_version(self, name: str, version: int) -> TableDefinition:
        """A definition of a table as it was stored; WrongUse for an unknown name or version."""
        (table,) = self.choose_tables([name])
        key = table.table_id, version
        with self.database.begin() as connection:
            found = tables.load_versions(connection, [key])
        if key not in found:
            raise WrongUse(f"{name} has no version {version}: the one in force is {table.version}")
        return found[key]

    def choose_ids(self, names: Collection[str] | None) -> list[int] | None:
        """Table ids of the tables named, or None for all; for a join table that of the log of its changes."""
        return None if names is None else [table.table_id for table in self.choose_logs(names)]
