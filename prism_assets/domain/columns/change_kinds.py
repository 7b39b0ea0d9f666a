"""Changes of columns by `apply`. All other changes are in `domain/tables/changes.py`."""
# ruff: noqa: D102  # Change says what the two methods of every class do

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.part_changes import leaf_words
from prism_assets.domain.columns.parts import paths_of
from prism_assets.domain.columns.transitions import ColumnRename, ColumnWidening, RenameState, WideningState
from prism_assets.domain.columns.types import ColumnType, Field
from prism_assets.domain.tables.change import NEVER_READ, Change, with_column
from prism_assets.domain.tables.definition import GRACE_DAYS, TableDefinition


@dataclass(frozen=True)
class AddColumn(Change):
    """A new column at its position. Its id is assigned later."""

    column: Column
    position: int

    def line(self, table: str) -> str:
        return f"add column {self.column.name} {self.column.type.name} to {table}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        columns = (*table.columns[: self.position], self.column, *table.columns[self.position :])
        return dataclasses.replace(table, columns=columns)


@dataclass(frozen=True)
class DropColumn(Change):
    """A column hidden from readers. Objects keep it until they are rebuilt, and its id is never reused."""

    column: Column

    def line(self, table: str) -> str:
        return (
            f"drop column {self.column.name} of {table}: readers no longer see it; objects keep its values, and the "
            "name stays taken, until their days are rebuilt"
        )

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, columns=tuple(item for item in table.columns if item != self.column))


@dataclass(frozen=True)
class RenameColumn(Change):
    """A new name for readers by id. Readers of Glue follow through `rename`, None if no object has the former name."""

    before: str
    name: str
    rename: ColumnRename | None

    def line(self, table: str) -> str:
        if self.rename is None:
            return f"rename column {self.before} of {table} to {self.name}"
        what = (
            f"rename column {self.before} of {table} to {self.name}"
            if self.before != self.name
            else f"let readers of Glue find column {self.name} of {table} by this name"
        )
        return (
            f"{what}: Iceberg, DuckLake, `prism erase` and table files have the new name at once; older objects are "
            f"rewritten, and until then readers of Glue, `prism query` among them, see {self.rename.former}, then both "
            f"names for {GRACE_DAYS} days, then {self.name} alone"
        )

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.before, name=self.name, stored_as=None, rename=self.rename)


@dataclass(frozen=True)
class AdvanceRename(Change):
    """The next state of a renamed column, or None at the end."""

    name: str
    former: str
    rename: ColumnRename | None

    def line(self, table: str) -> str:
        match self.rename.state if self.rename else None:
            case RenameState.DRAINING:
                return f"find column {self.name} beside {self.former} in every object of {table}"
            case RenameState.BOTH_SHOWN:
                return f"show column {self.name} beside {self.former} in Glue of {table}"
            case RenameState.DRAINING_FORMER:
                return f"show column {self.name} without {self.former} in Glue of {table}"
            case _:
                return f"write column {self.name} without {self.former} into objects of {table}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, rename=self.rename)


@dataclass(frozen=True)
class ReadColumn(Change):
    """New sources of a column's values: another key, other keys, or another expression."""

    name: str
    before: str
    source: str
    sources: tuple[str, ...]
    value: str | None

    def line(self, table: str) -> str:
        return f"read column {self.name} of {table} from {read_from(self)} instead of {self.before}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, source=self.source, sources=self.sources, value=self.value)


@dataclass(frozen=True)
class WidenColumn(Change):
    """A wider type. Objects and Glue follow through `widening`, None if no object has values of the former type."""

    name: str
    before: ColumnType
    type: ColumnType
    widening: ColumnWidening | None = None

    def line(self, table: str) -> str:
        former, wanted = leaf_words(self.name, self.before, self.type), leaf_words(self.name, self.type, self.before)
        widened = f"widen column {self.name} of {table} from {former} to {wanted}"
        if self.widening is None:
            return widened
        if self.widening.copy_type:
            return (
                f"{widened}: merged objects are copied with this type, and once all have a copy, the copies replace "
                f"them in one step; until then the column is {former} for every reader"
            )
        return (
            f"{widened}: once every catalog shows it, new objects have this type, and older ones are rewritten; until "
            "then Redshift Spectrum, and other readers of Glue that do not widen by themselves, fail on the column in "
            "days with older objects"
        )

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        if self.widening is None:
            return with_column(table, self.name, type=self.type)
        return with_column(table, self.name, widening=self.widening)


@dataclass(frozen=True)
class AdvanceWidening(Change):
    """The next state of a widening before objects for readers have the wider type."""

    name: str
    type: ColumnType
    widening: ColumnWidening

    def line(self, table: str) -> str:
        column = f"column {self.name} of {table} as {self.type.name}"
        minutes = self.widening.flip_limit.total_seconds() / 60
        match self.widening.state:
            case WideningState.FLIPPING:
                return (
                    f"begin to flip {column}: new objects wait, {minutes:.0f} minutes at most, until all days are "
                    "closed, merged and copied"
                )
            case WideningState.COPYING:
                return f"give up the flip of {column} for now: new objects are taken in again"
            case _:
                return f"show {column} at once, and write objects with this type once every catalog shows it"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, widening=self.widening)


@dataclass(frozen=True)
class FlipColumn(Change):
    """The wider type takes effect: copies replace all objects for readers."""

    name: str
    type: ColumnType

    def line(self, table: str) -> str:
        return f"flip column {self.name} of {table} to {self.type.name}: its copies replace all objects"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, type=self.type, widening=None)


@dataclass(frozen=True)
class WriteWidened(Change):
    """Every catalog shows the wider type, so new objects have it. Older ones follow through `widening`."""

    name: str
    type: ColumnType
    widening: ColumnWidening

    def line(self, table: str) -> str:
        return f"write column {self.name} of {table} as {self.type.name}, which every catalog shows"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, type=self.type, widening=self.widening)


@dataclass(frozen=True)
class EndWidening(Change):
    """No object has values of the former type any more."""

    name: str
    former: ColumnType
    type: ColumnType

    def line(self, table: str) -> str:
        former, wanted = leaf_words(self.name, self.former, self.type), leaf_words(self.name, self.type, self.former)
        return f"end the widening of column {self.name} of {table} to {wanted}: no object has {former} now"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, widening=None)


@dataclass(frozen=True)
class LengthenColumn(Change):
    """A greater maximum length of a column's values."""

    name: str
    before: int
    length: int

    def line(self, table: str) -> str:
        return f"lengthen column {self.name} of {table} from {self.before} to {self.length} bytes"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, length=self.length)


@dataclass(frozen=True)
class ShortenColumn(Change):
    """A smaller maximum length, for a table that was never read."""

    name: str
    before: int
    length: int

    def line(self, table: str) -> str:
        return f"shorten column {self.name} of {table} from {self.before} to {self.length} bytes: {NEVER_READ}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, length=self.length)


@dataclass(frozen=True)
class ChangeParts(Change):
    """Parts of a nested column that are added, dropped, renamed, reordered, or read in another way.

    Objects and Glue keep the first name of a field. In a table that was never read, all parts may change.
    """

    name: str
    before: ColumnType
    type: ColumnType
    widening: ColumnWidening | None = None

    @property
    def dropped(self) -> list[str]:
        """The paths of parts that readers no longer see."""
        kept = {part.field_id for _, part in paths_of(self.name, self.type)}
        return [path for path, part in paths_of(self.name, self.before) if part.field_id not in kept]

    def line(self, table: str) -> str:
        before = {part.field_id: (path, part) for path, part in paths_of(self.name, self.before)}
        parts = []
        for path, part in paths_of(self.name, self.type):
            if part.field_id not in before:
                parts.append(f"add {path} {part.type_name}")
                continue
            former, earlier = before[part.field_id]
            if earlier.name != part.name:
                parts.append(f"rename {former} to {path}{_kept_name(part)}")
            elif _options(earlier) != _options(part):
                parts.append(f"{path} is read as {_read_as(part)}")
            elif earlier.evolved and not part.evolved:
                parts.append(f"{path} is in the file")
        parts += [f"remove {path}" for path in self.dropped]
        return f"change parts of column {self.name} of {table}: {'; '.join(parts) or 'their order'}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return with_column(table, self.name, type=self.type, widening=self.widening)


def _kept_name(part: Field) -> str:
    """Returns what readers by name see of a renamed field."""
    return f", which stays {part.stored_name} in objects, in Glue and for `prism query`" if part.stored_as else ""


def _options(part: Field) -> Field:
    """Returns a part without what is no option: its own parts, and its place."""
    leaf = part.type.keyword if part.type.parts else part.type
    return dataclasses.replace(part, type=leaf, stored_as=None, in_place_of=0, evolved=False)  # type: ignore[arg-type]


def _read_as(part: Field) -> str:
    source = f" from the key {part.source}" if part.source and part.source != part.name else ""
    return f"{part.type_name}{source}{', sensitive' if part.sensitive else ''}"


@dataclass(frozen=True)
class ReplaceColumn(Change):
    """A new column in the place of another, for a table that was never read. Its id is assigned when it is stored."""

    before: Column
    column: Column

    def line(self, table: str) -> str:
        before, after = (f"{column.name} {column.type.name}" for column in (self.before, self.column))
        return f"replace column {before} of {table} by {after}: {NEVER_READ}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        columns = tuple(self.column if item == self.before else item for item in table.columns)
        return dataclasses.replace(table, columns=columns)


@dataclass(frozen=True)
class ReorderColumns(Change):
    """Another order of columns, by name. Objects order columns by id."""

    names: tuple[str, ...]

    def line(self, table: str) -> str:
        return f"reorder the columns of {table}: {', '.join(self.names)}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, columns=tuple(map(table.column, self.names)))


def read_from(column: Column | ReadColumn) -> str:
    """Returns the source of a column's values for people: as in the file, or the implied key."""
    if column.value is not None:
        return f"the expression {column.value}"
    return ", ".join(column.sources) or f"the key {column.source}"
