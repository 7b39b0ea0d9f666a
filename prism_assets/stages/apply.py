"""Brings PostgreSQL in line with the table files: plan, show, execute."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection

from prism_assets.domain.change_log import tables_of
from prism_assets.domain.column_changes import (
    NOTHING_STORED,
    StoredColumns,
    column_problems,
    continued_columns,
    erased_by,
    followed_columns,
    kept_columns,
)
from prism_assets.domain.drift import defined_keys
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.names import TableName
from prism_assets.domain.partitions import SYMLINK
from prism_assets.domain.stream_format import ReadFile
from prism_assets.domain.table_changes import Change, DropColumn, Moves, RenameTable, applied, changes_between, describe
from prism_assets.domain.table_file import parse_table_file
from prism_assets.domain.tables import Column, Stream, TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import catalog_state, drops, erasures, locks, retention, tables, undefined_fields
from prism_assets.metadata.tables import FormerName, KnownStream
from prism_assets.settings import SYMLINK_SUFFIX
from prism_assets.stages.context import StageContext
from prism_assets.stages.forever import find_cost
from prism_assets.stages.installation import preview_lake, take_lake


@dataclass(frozen=True)
class TablePlan:
    """What `apply` does to one table, from the definition that is in force, or from nothing."""

    name: TableName
    old: TableDefinition | None
    changes: tuple[Change, ...]
    consequences: tuple[str, ...] = ()
    """What later runs do because of it, a line each."""
    records: TableName | None = None
    """The join table whose changes this table logs. It stands before this one in a plan."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What is said to people; nothing where nothing changes."""
        return (*describe(str(self.name), self.changes), *self.consequences)


@dataclass(frozen=True)
class ApplyPlan:
    """What happens to all tables, in the order of their names, and what was left out as stored rows do not allow it."""

    tables: tuple[TablePlan, ...]
    problems: tuple[str, ...] = ()
    lake: tuple[str, ...] = ()
    """What will be done so that database and lake belong together."""
    notices: tuple[str, ...] = ()
    """What stays otherwise than the files say, and what to do."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What will be done, one line a step."""
        return (*self.lake, *(line for table in self.tables for line in table.lines))


def read_table_files(folder: Path) -> list[TableDefinition]:
    """Reads all `*.yaml` below a folder; DefinitionError with every problem of every file."""
    found, problems = parse_table_files(folder)
    if problems:
        raise DefinitionError("\n".join(problems))
    return found


def parse_table_files(folder: Path) -> tuple[list[TableDefinition], list[str]]:
    """The tables of all sound `*.yaml` below a folder, and every problem of the others.

    Of two files that contradict each other the one that was written later is left out. The file of a join table gives
    two: its records and the log of its changes.
    """
    if not folder.is_dir():
        raise DefinitionError(f"{folder} is not a folder: give the folder of the table files, such as tables/")
    found: list[TableDefinition] = []
    problems: list[str] = []
    for path in sorted(_table_files(folder), key=_age):
        try:
            of_file = tables_of(parse_table_file(path.read_text(encoding="utf-8"), str(path), _beside(path)))
        except DefinitionError as error:
            problems.append(str(error))
        except UnicodeDecodeError:
            problems.append(f"{path}:1: the file is not UTF-8")
        except OSError as error:
            problems.append(f"{path}:1: the file cannot be read: {error.strerror}")
        else:
            clashes = [problem for table in of_file for problem in _clashes(table, found)]
            problems += clashes
            found += [] if clashes else of_file
    return sorted(found, key=lambda table: (table.path or "", table.name)), sorted(problems)


def _beside(path: Path) -> ReadFile:
    return lambda name: (path.parent / name).read_bytes()


def _table_files(folder: Path) -> list[Path]:
    return [path for path in [*folder.rglob("*.yaml"), *folder.rglob("*.yml")] if path.is_file()]


def _age(path: Path) -> tuple[float, str]:
    """Orders files by the time they were written, the oldest first, and those of one time by their path."""
    try:
        return path.stat().st_mtime, str(path)
    except OSError:  # gone meanwhile; reading it tells
        return 0.0, str(path)


def _clashes(table: TableDefinition, others: Sequence[TableDefinition]) -> list[str]:
    """Two files for one table, and streams whose prefixes contain each other: their objects would be read twice."""
    problems = []
    known = [(stream, other) for other in others for stream in other.streams]
    for number, stream in enumerate(table.streams):
        for before, owner in [*known, *((earlier, table) for earlier in table.streams[:number])]:
            if _overlap(stream, before):
                problems.append(
                    f"{_place(table, stream)}: {stream.url} of {table.name} overlaps {before.url} of {owner.name} "
                    f"({owner.path}); an object has one table, so give the prefix to one of them"
                )
    same = next((other for other in others if other.name == table.name), None)
    if same is not None:
        problems.append(f"{table.path}:1: table: {table.name} is also defined in {same.path}")
    return problems


def _overlap(one: Stream, other: Stream) -> bool:
    return one.url.startswith(other.url) or other.url.startswith(one.url)


def _place(table: TableDefinition, stream: Stream) -> str:
    """Where a stream stands in its file."""
    return table.places.get(stream.url, f"{table.path}:1: streams")


def plan_apply(
    files: Sequence[TableDefinition],
    known: Sequence[TableDefinition],
    streams: Sequence[KnownStream],
    former: Sequence[FormerName] = (),
    stored: Mapping[int, StoredColumns] | None = None,
    dropped: Sequence[TableName] = (),
    linked: Collection[int] = (),
) -> ApplyPlan:
    """Compares files with what is in force. Changes that stored rows do not allow become problems.

    `stored` is what is known of the columns of tables beside their definitions, by table id; `dropped` are the names of
    tables that are gone, `linked` the ids of those that are shown by symlinks, or may be.
    """
    names = _Names.of(files, known, former, dropped, linked)
    forbidden = {}

    def of_table(old: TableDefinition) -> StoredColumns:
        return (stored or {}).get(old.table_id, NOTHING_STORED)

    for table in files:
        forbidden[table.name] = list(names.problems(table))
        if old := names.old(table):
            forbidden[table.name] += _forbidden_changes(table, old, of_table(old))
    sound = [table for table in files if not forbidden[table.name]]
    renamed = {old.table_id: str(table.name) for table in sound if (old := names.old(table))}
    claims = _Claims.of(sound, {**{table.table_id: str(table.name) for table in known}, **renamed}, streams)
    ordered = sorted(files, key=lambda item: item.name)
    wrong = {table.name: [*claims.taken(table, names.old(table)), *forbidden[table.name]] for table in ordered}
    broken = {_file_of(table) for table in ordered if wrong[table.name]}
    problems = [problem for table in ordered for problem in wrong[table.name]]
    notices: list[str] = []
    plans = []
    for table in ordered:
        old = names.old(table)
        if _file_of(table) not in broken:
            notices += _notices(table, old) if old else []
            name = names.unused(table.name)
            wanted = _on_top_of(table, old, of_table(old)) if old else dataclasses.replace(table, name=name)
            changes = changes_between(old, wanted, claims.moves_of(table, old))
            plans.append(TablePlan(table.name, old, changes, records=table.records))
    return ApplyPlan(tuple(plans), tuple(problems), notices=tuple(notices))


def _file_of(table: TableDefinition) -> TableName:
    """The table that a file is named after: both tables of a join table change, or neither does."""
    return table.records or table.name


@dataclass(frozen=True)
class _Holder:
    """Who has a name of Glue: a table, by its definition in force or its file, and what it is called from now on."""

    of: TableDefinition
    name: TableName
    by_symlinks: bool


@dataclass(frozen=True)
class _Names:
    """Which table a file is about, and which names are free: those that Glue shows belong to who had them."""

    known: Mapping[str, TableDefinition]
    files: Mapping[str, TableDefinition]
    former: Mapping[str, FormerName]
    heirs: Mapping[str, Sequence[TableDefinition]]
    dropped: Sequence[TableName]
    linked: Collection[int]

    @classmethod
    def of(
        cls,
        files: Sequence[TableDefinition],
        known: Sequence[TableDefinition],
        former: Sequence[FormerName],
        dropped: Sequence[TableName] = (),
        linked: Collection[int] = (),
    ) -> _Names:
        """Files by their names, and by those that they say they had."""
        heirs: dict[str, list[TableDefinition]] = {}
        for table in files:
            if table.was is not None:
                heirs.setdefault(str(table.was), []).append(table)
        return cls(
            {str(table.name): table for table in known},
            {str(table.name): table for table in files},
            {str(item.name): item for item in former},
            heirs,
            dropped,
            linked,
        )

    def old(self, table: TableDefinition) -> TableDefinition | None:
        """The definition in force of the table of a file: by its name, or by the one that it had."""
        return self.known.get(str(table.name)) or self.known.get(str(table.was))

    def problems(self, table: TableDefinition) -> Iterator[str]:
        """Why a table may not be named so."""
        name, was, place = str(table.name), str(table.was), table.places.get("was", f"{table.path}:1: was")
        taken = self.former.get(name)
        old = self.old(table)
        if old is not None and old.dropped:
            place = table.places.get("table" if str(old.name) == name else "was", f"{table.path}:1: table")
            yield f"{place}: {old.name} is being dropped; remove it here, or wait until `prism status` names it no more"
            return
        if taken and (old is None or old.table_id != taken.table_id):
            place = table.places.get("table", f"{table.path}:1: table")
            yield (
                f"{place}: {name} is the former name of another table, which Glue shows until "
                f"{taken.end_time:%Y-%m-%d %H:%M}Z and the catalog run behind that; wait, or choose another name"
            )
        yield from self._symlink_problems(table)
        if table.was is None or was not in self.known:
            return
        if name in self.known:
            yield f"{place}: {was} and {name} are two tables, and no table takes the name of another; remove the field"
        elif len(self.heirs[was]) > 1:
            others = ", ".join(str(heir.name) for heir in self.heirs[was] if heir is not table)
            yield f"{place}: {was} is also said to be the former name of {others}; only one of them can be"
        elif was in self.files:
            yield (
                f"{place}: {was} is also defined in {self.files[was].path}; Glue shows it as the former name of {name} "
                "for grace_days, and no other table can have it before that is over"
            )
        elif self.known[was].iceberg is not None:
            yield (
                f"{place}: {was} is an Iceberg table, too, which is not renamed: take `iceberg` out of its file, run "
                "`prism iceberg publish`, rename it, and put `iceberg` in again"
            )

    def _symlink_problems(self, table: TableDefinition) -> Iterator[str]:
        """Names of Glue that a table has by symlinks and another one as it is, or the other way round."""
        for name, holders in self._held_by_symlinks.items():
            mine = [one for one in holders if one.of is self._owner(table)]
            if not mine or len(holders) == 1:
                continue
            own = next((one for one in mine if one.by_symlinks), mine[0])
            other = next(one for one in holders if one is not own)
            if own.by_symlinks:
                place = table.places.get("symlink", f"{table.path}:1: symlink")
                said = f"is what readers of symlinks call {table.name}, and {other.name} has that name; remove one"
            else:
                place = table.places.get("table", f"{table.path}:1: table")
                said = f"is what readers of symlinks call {other.name}; choose another name, or wait until it is free"
            yield f"{place}: {name} {said}"

    def _owner(self, table: TableDefinition) -> TableDefinition:
        """What stands for the table of a file: the definition in force, where there is one."""
        return self.old(table) or table

    @cached_property
    def _held_by_symlinks(self) -> Mapping[str, Sequence[_Holder]]:
        """The names of Glue that a table has by symlinks, with all who have them: now, before, or from now on."""
        known = list(self.known.values())
        if not self.linked and not any(table.symlink for table in (*known, *self.files.values())):
            return {}
        former: dict[int, list[TableName]] = {}
        for item in self.former.values():
            former.setdefault(item.table_id, []).append(item.name)
        found: dict[str, list[_Holder]] = {}
        heirs = {id(self._owner(table)): table for table in self.files.values()}
        for owner in {id(item): item for item in (*known, *map(self._owner, self.files.values()))}.values():
            versions = [owner, *([heirs[id(owner)]] if id(owner) in heirs else [])]
            names = {str(name): name for name in (*(one.name for one in versions), *former.get(owner.table_id, ()))}
            for name in names.values():
                found.setdefault(str(name), []).append(_Holder(owner, versions[-1].name, by_symlinks=False))
                if owner.table_id in self.linked or any(one.symlink for one in versions):
                    linked = f"{name.schema}{SYMLINK_SUFFIX}.{name.table}"
                    found.setdefault(linked, []).append(_Holder(owner, versions[-1].name, by_symlinks=True))
        return {name: holders for name, holders in found.items() if any(one.by_symlinks for one in holders)}

    def unused(self, name: TableName) -> TableName:
        """The name of a new table, with a folder that no table had before."""
        taken = {item.physical for item in (*(table.name for table in self.known.values()), *self.dropped)}
        folder, number = name, 1
        while folder.physical in taken:
            number += 1
            folder = TableName(name.schema, name.table, physical_table=f"{name.table}_{number}")
        return folder


@dataclass(frozen=True)
class _Claims:
    """Who reads which stream, before and after: `ended` are those that the file of their table names no more."""

    names: Mapping[int, str]
    ended: frozenset[int]
    known: tuple[KnownStream, ...]
    wanted: Mapping[str, str]

    @classmethod
    def of(cls, files: Sequence[TableDefinition], names: Mapping[int, str], streams: Sequence[KnownStream]) -> _Claims:
        """A table whose file is not among these keeps its streams. `names` are those that tables will have, by id."""
        wanted = {stream.url: str(table.name) for table in files for stream in table.streams}
        applied_names = {str(table.name) for table in files}
        ended = {
            item.stream_id
            for item in streams
            if item.removed
            or (names.get(item.table_id) in applied_names and wanted.get(item.stream.url) != names[item.table_id])
        }
        return cls(names, frozenset(ended), tuple(streams), wanted)

    def taken(self, table: TableDefinition, old: TableDefinition | None) -> list[str]:
        """Streams of a table whose objects another table reads: a prefix has one owner at a time."""
        return [
            f"{_place(table, stream)}: {stream.url} of {table.name} overlaps {other.stream.url}, which feeds another "
            f"table, {self.names.get(other.table_id)}; take it out of that file in the same run of apply to move it"
            for stream in table.streams
            for other in self.known
            if (old is None or other.table_id != old.table_id)
            and other.stream_id not in self.ended
            and _overlap(stream, other.stream)
        ]

    def moves_of(self, table: TableDefinition, old: TableDefinition | None) -> Moves:
        """Which streams a table gets from others, and gives to others."""
        mine = old.table_id if old else None
        owners = {item.stream.url: item.table_id for item in self.known}
        origins = {
            stream.url: self.names[owner]
            for stream in table.streams
            if (owner := owners.get(stream.url)) is not None and owner != mine and owner in self.names
        }
        return Moves(origins, {url: name for url, name in self.wanted.items() if name != str(table.name)})


def _lake_streams(files: Sequence[TableDefinition], lake_url: str) -> list[str]:
    """Streams that would take in the lake's own objects."""
    return [
        f"{_place(table, stream)}: {stream.url} overlaps the lake at {lake_url}"
        for table in files
        for stream in table.streams
        if lake_url.startswith(stream.url) or stream.url.startswith(lake_url)
    ]


def _forbidden_changes(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> list[str]:
    """What would make stored objects unreadable, or rows lie where nobody looks for them."""
    problems = [f"{table.path}:1: columns: {problem}" for problem in column_problems(table, old, stored)]
    if table.partition_column != old.partition_column or table.timezone != old.timezone:
        problems.append(
            f"{table.path}:1: partition: column and timezone decide where stored rows lie; keep them, or make a table"
        )
    return [*problems, *_forbidden_joins(table, old)]


def _forbidden_joins(table: TableDefinition, old: TableDefinition) -> Iterator[str]:
    """What would make other records of the changes of before. These are folded once, so nothing can make up for it."""
    kinds = [(before.join is not None, before.change_log is not None) for before in (old, table)]
    if kinds[0] != kinds[1]:
        yield f"{table.path}:1: table: {old.name} is {_kind(old)}, and no table becomes {_kind(table)}; {_NEW_TABLE}"
    if table.join is None or old.join is None:
        return
    for field in ("key", "groups", "window_seconds", "lateness_seconds", "after", "buckets"):
        if getattr(table.join, field) != getattr(old.join, field):
            name = field.removesuffix("_seconds")
            place = table.places.get(name, f"{table.path}:1: {name}")
            yield f"{place}: records are made by what it says, and stay as they are; {_NEW_TABLE}"
    for name in sorted({column.name for column in old.columns} - {column.name for column in table.columns}):
        yield f"{table.path}:1: columns: {name} is missing; columns of join tables cannot be dropped or renamed yet"
    before = {member.column: member for member in old.join.members}
    for member in table.join.members:
        if before.get(member.column, member) != member:
            message = f"{member.column} keeps its group and its merge, as records are made by them; {_NEW_TABLE}"
            yield f"{table.path}:1: columns: {message}"


_NEW_TABLE = "to have it otherwise, make a table of another name"


def _kind(table: TableDefinition) -> str:
    if table.join is not None:
        return "a join table"
    return "a log table" if table.change_log is None else "the log of changes of a join table"


def _notices(table: TableDefinition, old: TableDefinition) -> list[str]:
    return [
        f"{old.name} keeps the column {column.name} {column.type.name}, which came by its contract and is not in "
        f"{table.path}: `prism table drift {old.name} --patch` prints the line to add"
        for column in kept_columns(table, old)
    ]


def _on_top_of(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> TableDefinition:
    """What a file says with the ids that the table and its columns have."""
    columns = continued_columns(table, old, stored)
    # Iceberg needs microseconds, as which a file with it is read.
    says_format = table.says_format or table.iceberg is not None
    file_format = table.file_format if says_format else old.file_format
    name = old.name
    if str(table.name) != str(old.name):
        folder = (old.name.physical_schema or old.name.schema, old.name.physical_table or old.name.table)
        name = TableName(table.name.schema, table.name.table, *folder)
    known = dataclasses.replace(table, name=name, table_id=old.table_id, version=old.version)
    return dataclasses.replace(known, columns=columns, file_format=file_format)


def execute_apply(connection: Connection, plan: ApplyPlan, now: datetime) -> None:
    """Writes the plan; one transaction with the caller's reads, so a death in it leaves nothing half-done.

    No batch is starting meanwhile, and no object is being registered: what a batch has claimed belongs to the table
    that its stream fed before, everything later to the one that it feeds now.
    """
    if any(planned.changes for planned in plan.tables):
        locks.hold_epoch(connection)
        tables.lock_streams(connection)
    in_force: dict[str, TableDefinition] = {}
    for planned in plan.tables:
        table = applied(planned.old, planned.changes)
        in_force[str(table.name)] = table
        if not planned.changes:
            continue
        for change in planned.changes:
            if isinstance(change, RenameTable):
                tables.rename_table(connection, table.table_id, change.before, change.name, change.grace_days)
        records = in_force[str(planned.records)] if planned.records else None
        if planned.old is None:
            table_id = tables.insert_table(connection, table, now, records.table_id if records else None)
            table = dataclasses.replace(table, table_id=table_id)
        table = _with_ids(connection, table) if records is None else _with_ids_of(records, table)
        table = in_force[str(table.name)] = dataclasses.replace(table, version=table.version + 1)
        tables.save_version(connection, table, now)
        tables.save_columns(connection, table, now)
        tables.remove_streams(connection, table, table.version - 1)
        tables.save_streams(connection, table.table_id, table.streams)
        undefined_fields.forget_fields(connection, table.table_id, defined_keys(table))
        failpoint("apply.in_table")


def _with_ids(connection: Connection, table: TableDefinition) -> TableDefinition:
    """Gives new columns ids that no column of the table ever had."""
    highest = tables.highest_column_id(connection, table.table_id)
    columns = []
    for column in table.columns:
        highest += column.column_id == 0
        columns.append(dataclasses.replace(column, column_id=column.column_id or highest))
    return dataclasses.replace(table, columns=tuple(columns))


def _with_ids_of(records: TableDefinition, table: TableDefinition) -> TableDefinition:
    """Gives the columns of a log of changes the ids that they have in the records, so that both mean one column."""
    ids = {column.name: column.column_id for column in records.columns}
    columns = [dataclasses.replace(item, column_id=ids.get(item.name, item.column_id)) for item in table.columns]
    return dataclasses.replace(table, columns=tuple(columns))


def run_apply(
    context: StageContext,
    folder: Path,
    now: datetime,
    *,
    dry_run: bool = False,
    restore_marker: bool = False,
    accept_amplification: bool = False,
) -> ApplyPlan:
    """Migrates the schema and applies the table files of a folder, all or none; returns the plan that was carried out.

    The first one joins database and lake for good. A stream that would take in the lake's own objects is refused.
    DefinitionError with every problem of every file; WrongLake, before any table is touched, where the two do not
    belong together. `restore_marker` puts back the lake's marker on purpose; without `accept_amplification` a table is
    not changed whose records live for ever where folds write far more than changes.
    """
    database, lake, stores = context.database, context.lake, context.stores
    files = read_table_files(folder)
    wrong = [problem for table in files for problem in context.check_expressions(table)]
    if problems := [*_lake_streams(files, lake.place.url), *wrong]:
        raise DefinitionError("\n".join(problems))
    if dry_run:
        taken = preview_lake(database, lake, stores, restore_marker=restore_marker)
        if not database.has_table("prism_tables"):
            return dataclasses.replace(plan_apply(files, [], []), lake=taken)
    else:
        database.migrate()
        taken = take_lake(database, lake, stores, now, restore_marker=restore_marker)
    with database.begin() as connection:
        locks.hold_apply(connection)
        plan = _plan(context, connection, files)
        plan = _with_cost(context, connection, plan, files, now, accept_amplification)
        if plan.problems:
            raise DefinitionError("\n".join(plan.problems))
        plan = _with_consequences(context, connection, plan, now)
        if not dry_run:
            execute_apply(connection, plan, now)
    return dataclasses.replace(plan, lake=taken)


def _plan(context: StageContext, connection: Connection, files: Sequence[TableDefinition]) -> ApplyPlan:
    """Against what is in force; a database that is not migrated yet knows no former names."""
    has_names = context.database.has_table("prism_former_names")
    former = tables.load_former_names(connection) if has_names else []
    known = tables.load_definitions(connection)
    names = _Names.of(files, known, former)
    stored = {
        old.table_id: _stored_columns(context, connection, table, old) for table in files if (old := names.old(table))
    }
    dropped = [drop.name for drop in drops.load_drops(connection)] if context.database.has_table("prism_drops") else []
    linked = _linked_tables(context, connection, known)
    return plan_apply(files, known, tables.load_streams(connection), former, stored, dropped, linked)


def _linked_tables(context: StageContext, connection: Connection, known: Sequence[TableDefinition]) -> set[int]:
    """The tables that a database shows by symlinks, or may: also those whose files ask for it no more."""
    if not context.database.has_table("prism_table_publications"):
        return set()
    found = catalog_state.load_publishers(connection, [table.table_id for table in known])
    return {table_id for table_id, names in found.items() if SYMLINK in names}


def _stored_columns(
    context: StageContext, connection: Connection, table: TableDefinition, old: TableDefinition
) -> StoredColumns:
    """Looks into objects only for names that columns of before had, and at erasures only where columns go.

    Whether there is any object is asked where a column is renamed or widened; no batch starts until that is done.
    """
    followed = followed_columns(table, old)
    new = {column.name for column in table.columns} - followed.keys()
    held = tables.load_held_names(
        connection, old.table_id, new & tables.load_column_names(connection, old.table_id) if new else ()
    )
    is_empty = False
    if any((column.name, column.type) != (of.name, of.type) for column, of in _pairs(table, followed)):
        locks.hold_epoch(connection)
        is_empty = tables.is_empty(connection, old.table_id)
    goes = len(followed) < len(old.columns)
    if not goes or not context.database.has_table("prism_erasures"):
        return StoredColumns(held, is_empty=is_empty)
    rules = erasures.load_rules(connection, [old.table_id]).get(old.table_id, ())
    named = [(rule.erasure_id, [column.column_id for column in rule.defined]) for rule in rules]
    return StoredColumns(held, erased_by(named), is_empty)


def _pairs(table: TableDefinition, followed: Mapping[str, Column]) -> list[tuple[Column, Column]]:
    """The columns of a file with those in force that they go on with."""
    return [(column, followed[column.name]) for column in table.columns if column.name in followed]


def _with_cost(
    context: StageContext,
    connection: Connection,
    plan: ApplyPlan,
    files: Sequence[TableDefinition],
    now: datetime,
    is_accepted: bool,
) -> ApplyPlan:
    """Says what records that live for ever cost; a database that is not migrated yet knows nothing of folds."""
    if not context.database.has_table("prism_folds"):
        return plan
    of_files = {table.name: table for table in files}
    planned = [(of_files[item.name], item.old, bool(item.changes)) for item in plan.tables]
    cost = find_cost(connection, planned, now, is_accepted=is_accepted)
    return dataclasses.replace(plan, problems=(*plan.problems, *cost.problems), notices=(*plan.notices, *cost.notices))


def _with_consequences(context: StageContext, connection: Connection, plan: ApplyPlan, now: datetime) -> ApplyPlan:
    """Says how many days and rows expire where a table keeps its days for another time."""
    told = []
    for planned in plan.tables:
        table = applied(planned.old, planned.changes)
        oldest_kept = table.oldest_kept(now)
        if planned.old is None or oldest_kept is None or table.retention_days == planned.old.retention_days:
            told.append(planned)
            continue
        found = retention.count_older(connection, table.table_id, oldest_kept)
        line = (
            f"expire {found.days} days of {table.name} before {oldest_kept}, with {found.rows:,} rows, at most "
            f"{context.settings.expire_max_days} days in each catalog run (PRISM_EXPIRE_MAX_DAYS)"
        )
        told.append(dataclasses.replace(planned, consequences=(line,) if found.days else ()))
    return dataclasses.replace(plan, tables=tuple(told))


def apply_sound(context: StageContext, folder: Path, now: datetime) -> ApplyPlan:
    """Migrates the schema and applies what is sound in a folder: one wrong file keeps no other table from its change.

    Joins database and lake as `run_apply` does. Tables with a problem stay as they are in force; the plan has the
    problems. So do tables of which a column would be dropped: processes with an older folder, and people who are in the
    middle of an edit, must not take from readers what nothing brings back.
    """
    database = context.database
    found, problems = parse_table_files(folder)
    wrong = {table.name: context.check_expressions(table) for table in found}
    files = [table for table in found if not wrong[table.name]]
    problems += [problem for table in found for problem in wrong[table.name]]
    database.migrate()
    taken = take_lake(database, context.lake, context.stores, now)
    with database.begin() as connection:
        locks.hold_apply(connection)
        plan = _without_drops(_plan(context, connection, files))
        execute_apply(connection, plan, now)
    return dataclasses.replace(plan, problems=(*problems, *plan.problems), lake=taken)


def _without_drops(plan: ApplyPlan) -> ApplyPlan:
    """The plan without the tables that lose a column, and a problem for each."""
    dropped = {
        planned.name: [change.column.name for change in planned.changes if isinstance(change, DropColumn)]
        for planned in plan.tables
    }
    problems = [
        f"{name}: its file has no column {', '.join(columns)}: put it back, or drop it with `prism table apply`"
        for name, columns in dropped.items()
        if columns
    ]
    kept = tuple(planned for planned in plan.tables if not dropped[planned.name])
    return dataclasses.replace(plan, tables=kept, problems=(*plan.problems, *problems))
