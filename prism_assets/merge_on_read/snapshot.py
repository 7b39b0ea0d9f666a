"""A join table at one moment: its objects of records and its unfolded changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone

from sqlalchemy import Connection

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.folding import FoldTask, RecordObject, UnfoldedChanges, bucket_tasks
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.database import Database
from prism_assets.metadata.days import retention
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.records import folds, record_faults, record_objects
from prism_assets.metadata.tables import tables
from prism_assets.objectstore.lake import Lake


@dataclass(frozen=True, kw_only=True)
class RecordsSnapshot:
    """A join table at one moment."""

    table: TableDefinition
    records: tuple[RecordObject, ...]
    """Current objects of records."""
    changes: tuple[UnfoldedChanges, ...]
    """Changes not yet folded."""
    set_aside: frozenset[int]
    """Ids of changes that a fold could not read."""
    expired: frozenset[date]
    """Days whose records are no longer shown."""
    erasures: tuple[ErasureRule, ...]
    """Erasures for which some object here was not searched. Matching rows are left out, as folds do."""
    time: datetime

    @property
    def tasks(self) -> list[FoldTask]:
        """The tasks of a fold over this snapshot. They carry fold id 0, because nothing is written."""
        return bucket_tasks(
            self.table, _open(self.records), self.changes, fold_id=0, now=self.time, erasures=self.erasures
        )


def is_join_table(database: Database, name: str) -> bool:
    """Whether a join table currently has this name. Former names and symlink names exist only in the catalog."""
    with database.repeatable_read() as connection:
        table = _tables_by_name(connection).get(name)
        return table is not None and table.join is not None


def _tables_by_name(connection: Connection) -> dict[str, TableDefinition]:
    """Returns the tables by name, without dropped tables and without join tables whose log is dropped."""
    found = {str(table.name): table for table in tables.load_definitions(connection) if not table.dropped}
    return {name: table for name, table in found.items() if table.join is None or str(log_name(table.name)) in found}


def load_snapshot(database: Database, lake: Lake, name: str) -> RecordsSnapshot:
    """Reads the snapshot in one transaction without locks. Raises WrongUse if the name is no join table."""
    with database.repeatable_read() as connection:
        by_name = _tables_by_name(connection)
        table = by_name.get(name)
        if table is None:
            raise WrongUse(
                f"there is no table {name} (there are: {', '.join(by_name) or 'none; run `prism table apply`'})"
            )
        if table.join is None:
            raise WrongUse(f"{name} is no join table: each of its rows is a line of its own")
        log = by_name[str(log_name(table.name))]
        set_aside = frozenset(item.object_id for item in record_faults.load_set_aside(connection, log.table_id))
        records = tuple(record_objects.load_current(connection, lake.keys(table), table.table_id))
        changes = tuple(_unfolded(connection, lake, log, set_aside))
        return RecordsSnapshot(
            table=table,
            records=records,
            changes=changes,
            set_aside=set_aside,
            expired=retention.load_expired(connection, table.table_id),
            erasures=_unsearched(connection, {table.table_id: _open(records), log.table_id: changes}),
            time=datetime.now(timezone.utc),
        )


def _open(records: tuple[RecordObject, ...]) -> tuple[RecordObject, ...]:
    """Returns the objects that are merged with changes."""
    return tuple(item for item in records if not item.is_settled)


def _unsearched(connection: Connection, objects: Mapping[int, Iterable[DataFile]]) -> tuple[ErasureRule, ...]:
    """Returns open erasures of both tables for which some given object was not searched. Takes no locks.

    An erasure of records has a twin for changes with the same digest and another id; one of both is enough. Searched
    objects hold no matching rows, so readers need no secrets of finished erasures.
    """
    searched = {number: min((item.erasure_id for item in files), default=None) for number, files in objects.items()}
    found: dict[str, ErasureRule] = {}
    for item in erasures.load_erasures(connection, list(objects), open_only=True):
        up_to = searched[item.table_id]
        if up_to is not None and up_to < item.erasure_id:
            found.setdefault(item.digest, item.rule)
    return tuple(found.values())


def _unfolded(
    connection: Connection, lake: Lake, log: TableDefinition, set_aside: frozenset[int]
) -> list[UnfoldedChanges]:
    """Returns small objects above the folded ones, and objects that folds have set aside, each once."""
    keys = lake.keys(log)
    found = {item.object_id: item for item in small_objects.load_these(connection, keys, set_aside)}
    for day in folds.load_unfolded(connection, log.table_id):
        above = small_objects.load_above(connection, keys, day.partition_id, day.folded_object_id)
        found |= {item.object_id: item for item in above}
    return [UnfoldedChanges.of_small(found[number]) for number in sorted(found) if found[number].row_count]
