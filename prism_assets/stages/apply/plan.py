"""Plans the changes of each table from the files and the current definitions alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prism_assets.domain.columns.changes import (
    NOTHING_STORED,
    StoredColumns,
    column_problems,
    continued_columns,
    fields_kept,
    kept_columns,
    waiting_columns,
)
from prism_assets.domain.columns.parts import paths_of
from prism_assets.domain.columns.types import ListType, MapType
from prism_assets.domain.names import TableName
from prism_assets.domain.service_limits import column_count_problem
from prism_assets.domain.tables.change import Change
from prism_assets.domain.tables.changes import describe
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.diff import changes_between
from prism_assets.domain.tables.row_program import name_field
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.metadata.tables.former_names import FormerName
from prism_assets.stages.apply.names import StreamClaims, TableNames
from prism_assets.stages.apply.routing import with_routes


@dataclass(frozen=True)
class TablePlan:
    """The changes `apply` makes to one table. `old` is its current definition, or None."""

    name: TableName
    old: TableDefinition | None
    changes: tuple[Change, ...]
    consequences: tuple[str, ...] = ()
    """Effects on later runs, a line each."""
    records: TableName | None = None
    """The join table whose changes this table logs. It stands before this one in a plan."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences for people. Empty without a change."""
        return (*describe(str(self.name), self.changes), *self.consequences)


@dataclass(frozen=True)
class ApplyPlan:
    """The changes of all tables in order of their names, and problems that stored rows cause."""

    tables: tuple[TablePlan, ...]
    problems: tuple[str, ...] = ()
    lake: tuple[str, ...] = ()
    """Steps that make database and lake belong together."""
    notices: tuple[str, ...] = ()
    """Remaining differences from the files, with the remedy."""
    looks: tuple[str, ...] = ()
    """Sentences about new streams without an object to read. They keep no table from being applied."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes, one line a step."""
        return (*self.lake, *(line for table in self.tables for line in table.lines))

    @property
    def reload(self) -> str | None:
        """Says that Dagster must reload the definitions to run new or renamed tables. None without any."""
        new = [str(table.name) for table in self.tables if table.old is None or table.old.name != table.name]
        if not new:
            return None
        return (
            f"Dagster runs nothing for {', '.join(new)} until it loads the definitions again: press *Reload "
            "definitions* on its page Deployment, or restart `dagster dev`"
        )


def plan_apply(
    files: Sequence[TableDefinition],
    known: Sequence[TableDefinition],
    streams: Sequence[KnownStream],
    former: Sequence[FormerName] = (),
    stored: Mapping[int, StoredColumns] | None = None,
    dropped: Sequence[TableName] = (),
    linked: Collection[int] = (),
) -> ApplyPlan:
    """Compares files with the current definitions. Changes that stored rows forbid become problems.

    `stored` has facts about columns beside the definitions, by table id. `dropped` are the names of dropped tables, and
    `linked` the ids of tables that symlinks show or may show.
    """
    names = TableNames.of(files, known, former, dropped, linked)
    forbidden = {}

    def of_table(old: TableDefinition) -> StoredColumns:
        return (stored or {}).get(old.table_id, NOTHING_STORED)

    for table in files:
        forbidden[table.name] = list(names.problems(table))
        if old := names.old(table):
            forbidden[table.name] += _forbidden_changes(table, old, of_table(old))
    sound = [table for table in files if not forbidden[table.name]]
    renamed = {old.table_id: str(table.name) for table in sound if (old := names.old(table))}
    claims = StreamClaims.of(sound, {**{table.table_id: str(table.name) for table in known}, **renamed}, streams)
    ordered = sorted(files, key=lambda item: item.name)
    wrong = {table.name: [*claims.taken(table, names.old(table)), *forbidden[table.name]] for table in ordered}
    broken = {_file_of(table) for table in ordered if wrong[table.name]}
    ordered, unfit = _with_routes(ordered, known, names, broken)
    for table in ordered:
        wrong[table.name] += unfit.get(str(table.name), ())
    broken |= {_file_of(table) for table in ordered if wrong[table.name]}
    problems = [problem for table in ordered for problem in wrong[table.name]]
    notices: list[str] = []
    plans = []
    for table in ordered:
        old = names.old(table)
        if _file_of(table) not in broken:
            if old:
                notices += [*_notices(table, old), *waiting_columns(table, old, of_table(old))]
            notices += _of_nested_columns(table, old)
            name = names.unused(table.name)
            wanted = _on_top_of(table, old, of_table(old)) if old else dataclasses.replace(table, name=name)
            changes = changes_between(old, wanted, claims.moves_of(table, old))
            plans.append(TablePlan(table.name, old, changes, records=table.records))
    notices += names.without_file()
    return ApplyPlan(tuple(plans), tuple(problems), notices=tuple(notices))


def _with_routes(
    ordered: Sequence[TableDefinition],
    known: Sequence[TableDefinition],
    names: TableNames,
    broken: Collection[TableName],
) -> tuple[list[TableDefinition], Mapping[str, Sequence[str]]]:
    """Returns the tables with whole routes, and problems by table. Tables of broken files keep current definitions."""
    sound = [table for table in ordered if _file_of(table) not in broken]
    replaced = {old.table_id for table in sound if (old := names.old(table))}
    kept = [table for table in known if table.table_id not in replaced and not table.dropped]
    routed, problems = with_routes(sound, kept)
    by_name = {table.name: table for table in routed}
    return [by_name.get(table.name, table) for table in ordered], problems


def _file_of(table: TableDefinition) -> TableName:
    """Returns the table a file is named after: both tables of a join table change together."""
    return table.records or table.name


def _forbidden_changes(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> list[str]:
    """Returns changes that make stored objects unreadable, or that move rows out of the place readers look at."""
    problems = [
        f"{table.places.get(name_field(name) if name else '', f'{table.path}:1: columns')}: {problem}"
        for name, problem in column_problems(table, old, stored)
    ]
    if problem := column_count_problem(len(table.columns) + len(kept_columns(table, old))):
        problems.append(f"{table.path}:1: columns: with those that came by its contract, {problem}")
    moves = (table.partition_column, table.timezone) != (old.partition_column, old.timezone)
    if moves and not stored.never_read:
        problems.append(
            f"{table.path}:1: partition: column and timezone decide where stored rows lie; keep them, or make a table"
        )
    return [*problems, *_forbidden_joins(table, old)]


def _forbidden_joins(table: TableDefinition, old: TableDefinition) -> Iterator[str]:
    """Yields changes of a join under which folded changes would make other records.

    Each change is folded once, so nothing would correct those records.
    """
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
    kept = [
        *(f"the column {column.name} {column.type.name}" for column in kept_columns(table, old)),
        *(f"the field {path} {part.type_name}" for path, part in fields_kept(table, old)),
    ]
    return [
        f"{old.name} keeps {what}, which came by its contract and is not in "
        f"{table.path}: `prism table drift {old.name} --patch` prints the line to add"
        for what in kept
    ]


def _of_nested_columns(table: TableDefinition, old: TableDefinition | None) -> list[str]:
    """Returns what Redshift Spectrum cannot do with new nested columns, by its documentation."""
    known = {column.name for column in old.columns} if old else set()
    new = [column for column in table.columns if column.type.parts and column.name not in known]
    if not new:
        return []
    names = ", ".join(column.name for column in new)
    parts = [(path, part.type) for column in new for path, part in paths_of(column.name, column.type)]
    kinds = [*((column.name, column.type) for column in new), *parts]
    lists = [
        path for path, kind in kinds if isinstance(kind, ListType) and isinstance(kind.element.type, ListType | MapType)
    ]
    further = f", and restricts lists of lists and of maps ({', '.join(lists)})" if lists else ""
    return [
        f"{table.name}: Redshift Spectrum returns no whole struct, list or map: `SELECT *` fails there, and queries "
        f"name the parts of {names}{further}"
    ]


def _on_top_of(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> TableDefinition:
    """Returns the file's definition with the ids of the current table and its columns."""
    columns = continued_columns(table, old, stored)
    # Iceberg needs microseconds, so a file with `iceberg:` counts as one that states the format.
    says_format = table.says_format or table.iceberg is not None
    file_format = table.file_format if says_format else old.file_format
    name = old.name
    if str(table.name) != str(old.name):
        folder = (old.name.physical_schema or old.name.schema, old.name.physical_table or old.name.table)
        name = TableName(table.name.schema, table.name.table, *folder)
    known = dataclasses.replace(table, name=name, table_id=old.table_id, version=old.version)
    return dataclasses.replace(known, columns=columns, file_format=file_format)
