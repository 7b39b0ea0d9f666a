"""Columns of tables: what a table file says of one, with the id that PostgreSQL gave it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.column_transitions import (
    SHOWS_FORMER,
    ColumnRename,
    ColumnTransition,
    ColumnWidening,
    RenameState,
    TransitionStep,
    WideningState,
)
from prism_assets.domain.documents import check_known, read_part
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.types import ColumnType, parse_type, type_named

TIME_UNITS = {"seconds": 1_000, "milliseconds": 1, "microseconds": 0.001}
SECONDS_LIMIT = 1_500_000_000_000
"""Numbers above this are milliseconds even where seconds are declared."""
DEFAULT_LENGTH = 65_535
"""Also the greatest."""
SENSITIVE = "(sensitive)"
"""People see this in the place of a sensitive value."""
# The parameters that stored definitions name at every column, null where its type does not take them.
_ALWAYS_STORED = ("precision", "scale")
# What stored definitions leave out where it says nothing, as versions that know none of it read those, too.
_SILENT: Mapping[str, object] = {
    "description": None,
    "sources": (),
    "value": None,
    "sensitive": False,
    "evolved": False,
    "stored_as": None,
    "rename": None,
    "widening": None,
}

# The types of which a stored widening tells.
_TYPES = ("former", "shown_first", "copy_type")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `column_id` is the Parquet and Iceberg field id, never reused; 0 until PostgreSQL gave one.

    Lengths are bytes of UTF-8. Offsets are `+HH:MM`. `zone_offset` stands in definitions of before and does nothing.
    One that `evolved` came by the contract of the table, and its file does not have it yet. `rename` says how far one
    is that was renamed. In definitions of before it is `stored_as` what it was called first: objects and Glue have that
    name alone. `widening` says which narrower type it was, of which objects may still have values, or which wider one
    it is to have: `type` is that of values in objects that are written under this definition. `was` is what the file
    says it was called; it is no part of what is compared or stored.

    Values are those of the key `source`, or of the first of `sources` that is not null, which are written as in table
    files (`domain/sources.py`), or are computed by the SQL expression `value`; `source` is then the column's name, and
    nobody reads it.
    """

    name: str
    type: ColumnType
    source: str
    length: int | None = None
    source_offset: str | None = None
    zone_offset: str | None = None
    time_unit: str | None = None
    required: bool = False
    column_id: int = 0
    description: str | None = None
    sources: tuple[str, ...] = ()
    value: str | None = None
    sensitive: bool = False
    evolved: bool = False
    stored_as: str | None = None
    rename: ColumnRename | None = None
    widening: ColumnWidening | None = None
    was: str | None = dataclasses.field(default=None, compare=False)

    @property
    def stored_name(self) -> str:
        """Its name in objects that are written under this definition."""
        return self.stored_as or self.name

    @property
    def copied_as(self) -> str | None:
        """The name of a copy that objects have beside it, for readers by name; None for most columns."""
        return self.rename.former if self.rename else None

    @property
    def transitions(self) -> tuple[ColumnTransition, ...]:
        """What it is on the way to: its name, its type, or both."""
        return tuple(item for item in (self.rename, self.widening) if item)

    @property
    def glue_name(self) -> str:
        """What readers of Glue find it by, in all objects that they are sent to."""
        return self.rename.former if self.rename and self.rename.state in SHOWS_FORMER else self.stored_name

    @property
    def precision(self) -> int | None:
        """The digits of a decimal; None for any other type."""
        return self.type.parameters.get("precision")

    @property
    def scale(self) -> int | None:
        """The digits of a decimal behind the point; None for any other type."""
        return self.type.parameters.get("scale")

    @property
    def wanted_type(self) -> ColumnType:
        """The type in its file: wider than that of values until objects may have it."""
        return (self.widening and self.widening.wanted_type) or self.type

    def widened(self) -> Column:
        """The same with the type that it is to have, at the end of the way to it."""
        return dataclasses.replace(self, type=self.wanted_type, widening=None)

    def after_rename_step(self, step: TransitionStep, version: int) -> Column:
        """The same behind a step to its new name, which comes with that version of the definition."""
        if self.rename and isinstance(step.to, RenameState):
            return dataclasses.replace(self, rename=dataclasses.replace(self.rename, state=step.to, since=version))
        return dataclasses.replace(self, rename=None)

    def after_widening_step(self, step: TransitionStep, version: int) -> Column:
        """The same behind a step to its wider type: all objects have that, or its flip begins or is given up, or older
        objects are to be rewritten.
        """
        widening = self.widening
        if widening and step.to in (WideningState.FLIPPING, WideningState.COPYING):
            is_flipping = step.to is WideningState.FLIPPING
            seconds = round(step.flip_limit.total_seconds())
            flip = dataclasses.replace(widening, is_flipping=is_flipping, flip_version=version, flip_seconds=seconds)
            return dataclasses.replace(self, widening=flip)
        if widening is None or step.to is None:
            return self.widened()
        left = ColumnWidening(former=widening.former, version=version)
        return dataclasses.replace(self.widened(), widening=left)

    @property
    def shown_type(self) -> ColumnType:
        """The type in Glue: wider than that of values for as long as Glue is to show it first."""
        return (self.widening and self.widening.shown_first) or self.type

    @property
    def glue_type(self) -> str:
        """The Hive type name that readers of the catalog see (formats, column types)."""
        return self.shown_type.glue_type(self.length)

    def to_document(self) -> dict[str, Any]:
        """The column as definitions store it: the parameters of its type stand next to the type's keyword.

        What says nothing is left out, as versions that know none of it read the definition, too.
        """
        told = {name: value for name, value in vars(self).items() if name not in _SILENT or value != _SILENT[name]}
        del told["was"]
        if self.rename:
            told["rename"] = {**vars(self.rename), "state": self.rename.state.value}
        if self.widening:
            said = {name: value for name, value in vars(self.widening).items() if value}
            told["widening"] = {name: said[name].name if name in _TYPES else said[name] for name in said}
        return {**told, **dict.fromkeys(_ALWAYS_STORED), **self.type.parameters, "type": self.type.keyword}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Column:
        """Reads what `to_document` wrote. InvariantBroken if this version does not know the type or a field."""
        what = f"the definition of column {document['name']}"
        try:
            kind = type_named(document["type"], document)
        except ValueError as error:
            raise InvariantBroken(f"{what} cannot be read: {error}; use the version that stored it") from error
        of_the_type = {"type", *_ALWAYS_STORED, *kind.parameters}
        values = {name: value for name, value in document.items() if name not in of_the_type}
        check_known(cls, values, what)
        if "sources" in values:
            values["sources"] = tuple(values["sources"])
        if "rename" in values:
            rename = read_part(ColumnRename, values["rename"], what)
            values["rename"] = dataclasses.replace(rename, state=RenameState(rename.state))
        if "widening" in values:
            told = values["widening"]
            types = {name: parse_type(told[name]) for name in _TYPES if name in told}
            values["widening"] = read_part(ColumnWidening, {**told, **types}, what)
        return cls(type=kind, **values)
