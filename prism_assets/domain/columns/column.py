"""Columns of tables: the definition in a table file, with the id from PostgreSQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.columns.parts import dropped_documents, from_documents, is_sensitive, to_documents
from prism_assets.domain.columns.transitions import (
    SHOWS_FORMER,
    ColumnRename,
    ColumnTransition,
    ColumnWidening,
    RenameState,
    TransitionStep,
    WideningState,
)
from prism_assets.domain.columns.type_names import nested_keyword, parse_type, type_named
from prism_assets.domain.columns.types import ColumnType
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.tables.stored_documents import check_known, read_part

TIME_UNITS = {"seconds": 1_000, "milliseconds": 1, "microseconds": 0.001}
SECONDS_LIMIT = 1_500_000_000_000
"""Greater numbers are milliseconds, even if seconds are declared."""
SENSITIVE = "(sensitive)"
"""Shown to people in place of a sensitive value."""
# Parameters in every stored column, null for types without them.
_ALWAYS_STORED = ("precision", "scale")
# Fields left out of stored definitions if they have these values.
_OMITTED: Mapping[str, object] = {
    "description": None,
    "sources": (),
    "value": None,
    "sensitive": False,
    "evolved": False,
    "stored_as": None,
    "rename": None,
    "widening": None,
}

# Fields of a stored widening that are types.
_TYPES = ("former", "shown_first", "copy_type")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. Lengths are bytes of UTF-8. Offsets are `+HH:MM`."""

    name: str
    type: ColumnType
    """The type of values in objects written under this definition."""
    source: str
    """The key of the values. With `value`, the column's name, and then it is unused."""
    length: int | None = None
    source_offset: str | None = None
    zone_offset: str | None = None
    """Unused. Stands in older definitions."""
    time_unit: str | None = None
    required: bool = False
    column_id: int = 0
    """The field id in Parquet and Iceberg. Never reused. 0 until PostgreSQL assigns one."""
    description: str | None = None
    sources: tuple[str, ...] = ()
    """Sources in the notation of table files (`domain/streams/sources.py`). The first value other than null counts."""
    value: str | None = None
    """The SQL expression that computes the values."""
    sensitive: bool = False
    evolved: bool = False
    """Added by the table's contract, and not yet in the file."""
    stored_as: str | None = None
    """The first name of a column in older definitions. Objects and Glue know only this name."""
    rename: ColumnRename | None = None
    """The state of a rename."""
    widening: ColumnWidening | None = None
    """The narrower type still in some objects, or the wider one to come."""
    was: str | None = dataclasses.field(default=None, compare=False)
    """The former name according to the file. Neither compared nor stored."""

    @property
    def hides(self) -> bool:
        """Whether only readers may see the values, or parts of them."""
        return self.sensitive or is_sensitive(self.type)

    @property
    def stored_name(self) -> str:
        """The name in objects written under this definition."""
        return self.stored_as or self.name

    @property
    def copied_as(self) -> str | None:
        """The name of a copy for readers by name, or None."""
        return self.rename.former if self.rename else None

    @property
    def transitions(self) -> tuple[ColumnTransition, ...]:
        """The column's rename and widening in progress."""
        return tuple(item for item in (self.rename, self.widening) if item)

    @property
    def glue_name(self) -> str:
        """The name for readers of Glue, present in all objects they read."""
        return self.rename.former if self.rename and self.rename.state in SHOWS_FORMER else self.stored_name

    @property
    def precision(self) -> int | None:
        """The digits of a decimal, or None."""
        return self.type.parameters.get("precision")

    @property
    def scale(self) -> int | None:
        """The digits of a decimal after the point, or None."""
        return self.type.parameters.get("scale")

    @property
    def wanted_type(self) -> ColumnType:
        """The type in the file. Wider than the values' type until objects may have it."""
        return (self.widening and self.widening.wanted_type) or self.type

    def widened(self) -> Column:
        """Returns the column with its target type, at the end of its widening."""
        return dataclasses.replace(self, type=self.wanted_type, widening=None)

    def after_rename_step(self, step: TransitionStep, version: int) -> Column:
        """Returns the column after a step of its rename. `version` is the definition version of the step."""
        if self.rename and isinstance(step.to, RenameState):
            return dataclasses.replace(self, rename=dataclasses.replace(self.rename, state=step.to, since=version))
        return dataclasses.replace(self, rename=None)

    def after_widening_step(self, step: TransitionStep, version: int) -> Column:
        """Returns the column after a step of its widening: the flip begins or is given up, older objects are to be
        rewritten, or all objects have the wider type.
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
        """The type in Glue. Wider than the values' type while Glue shows it first."""
        return (self.widening and self.widening.shown_first) or self.type

    @property
    def glue_type(self) -> str:
        """The Hive type name for catalog readers."""
        return self.glue_type_of(whole=False)

    def glue_type_of(self, *, whole: bool) -> str:
        """Returns the Hive type name. `whole` structs end with their dropped fields."""
        return self.shown_type.glue_type(self.length, whole=whole)

    def to_document(self) -> dict[str, Any]:
        """Returns the column for stored definitions. Parameters of its type stand beside the type's keyword.

        Fields without content are left out.
        """
        fields = {name: value for name, value in vars(self).items() if name not in _OMITTED or value != _OMITTED[name]}
        del fields["was"]
        if self.rename:
            fields["rename"] = {**vars(self.rename), "state": self.rename.state.value}
        if self.widening:
            widening = {name: value for name, value in vars(self.widening).items() if value}
            fields["widening"] = {
                name: self._type_document(widening[name]) if name in _TYPES else widening[name] for name in widening
            }
        return {
            **fields,
            **self._part_documents(self.type),
            **dict.fromkeys(_ALWAYS_STORED),
            **self.type.parameters,
            "type": self.type.keyword,
        }

    def _part_documents(self, kind: ColumnType) -> dict[str, Any]:
        lists = {"fields": to_documents, "dropped_fields": dropped_documents}
        return {key: found for key, listed in lists.items() if (found := list(listed(kind, self.column_id)))}

    def _type_document(self, kind: ColumnType) -> Any:
        return {"type": kind.keyword, **self._part_documents(kind)} if kind.parts else kind.name

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Column:
        """Reads the output of `to_document`. Raises InvariantBroken for an unknown type or field."""
        what = f"the definition of column {document['name']}"
        try:
            kind = _stored_type(document, what)
        except ValueError as error:
            raise InvariantBroken(f"{what} cannot be read: {error}; use the version that stored it") from error
        of_the_type = {"type", "fields", "dropped_fields", *_ALWAYS_STORED, *kind.parameters}
        values = {name: value for name, value in document.items() if name not in of_the_type}
        check_known(cls, values, what)
        if "sources" in values:
            values["sources"] = tuple(values["sources"])
        if "rename" in values:
            rename = read_part(ColumnRename, values["rename"], what)
            values["rename"] = dataclasses.replace(rename, state=RenameState(rename.state))
        if "widening" in values:
            stored = values["widening"]
            number = document["column_id"]
            types = {name: _widening_type(stored[name], number, what) for name in _TYPES if name in stored}
            values["widening"] = read_part(ColumnWidening, {**stored, **types}, what)
        return cls(type=kind, **values)


def _widening_type(stored: Any, column_id: int, what: str) -> ColumnType:
    return parse_type(stored) if isinstance(stored, str) else _stored_type({**stored, "column_id": column_id}, what)


def _stored_type(document: Mapping[str, Any], what: str) -> ColumnType:
    if nested_keyword(document["type"]) is None:
        return type_named(document["type"], document)
    fields, dropped = (document.get(key, ()) for key in ("fields", "dropped_fields"))
    return from_documents(document["type"], document["column_id"], fields, what, dropped)
