"""Changes inside nested columns: which parts of a file go on, and why others are refused.

A part goes on under its id. Objects and Glue keep its first name for ever, because a copy under another name would
need a copy of every struct around it. Readers by id follow a rename at once. Glue keeps the place of a dropped field,
because readers of Glue may match the fields of a day's struct with those of the table's struct by their places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from prism_assets.domain.columns.held_names import HeldName, taken
from prism_assets.domain.columns.names import followed_by_name, is_shorter, read_from_former, renamed_to_taken
from prism_assets.domain.columns.parts import path_below, paths_of, stored_form, with_parts
from prism_assets.domain.columns.types import ColumnType, DroppedField, Field, StructType
from prism_assets.domain.names import did_you_mean

_Kind = TypeVar("_Kind", bound=ColumnType)


def continued(kind: _Kind, before: ColumnType, *, was_read: bool = True) -> _Kind:
    """Returns a type of a file with the ids of the stored parts that it continues, and 0 for other parts.

    Fields that the contract added, and that the file does not have yet, stay at the end of their struct. In a table
    that was never read, names apply at once, and nothing keeps the place of a dropped field.
    """
    if type(kind) is not type(before):
        return kind
    followed = followed_by_name(kind.parts, before.parts)

    def numbered(part: Field) -> Field:
        same = followed.get(part.name)
        if same is None or not _keeps_its_id(part.type, same.type):
            return part
        first_name = same.stored_name if was_read else part.name
        return dataclasses.replace(
            part,
            field_id=same.field_id,
            stored_as=None if first_name == part.name else first_name,
            in_place_of=same.in_place_of,
            type=continued(part.type, same.type, was_read=was_read),
        )

    parts: Sequence[Field] = [*(numbered(part) for part in kind.parts), *_kept_parts(kind, before)]
    if not isinstance(before, StructType) or not was_read:
        return with_parts(kind, parts)
    parts, dropped = _with_places(parts, before)
    return with_parts(kind, parts, dropped)


def _kept_parts(kind: ColumnType, before: ColumnType) -> tuple[Field, ...]:
    """Returns fields added by the contract and missing in the file. They stay, because rows have them."""
    followed = {part.name for part in followed_by_name(kind.parts, before.parts).values()}
    return tuple(part for part in before.parts if part.evolved and part.name not in followed)


def kept_fields(path: str, kind: ColumnType, before: ColumnType) -> Iterator[tuple[str, Field]]:
    """Yields the fields at all levels that the contract added and the file does not have, with their paths."""
    if type(kind) is type(before):
        yield from ((path_below(path, before, part), part) for part in _kept_parts(kind, before))
    for below, part, same in _pairs(path, kind, before):
        yield from kept_fields(below, part.type, same.type)


def _keeps_its_id(kind: ColumnType, before: ColumnType) -> bool:
    return before.widens_to(kind) or (type(kind) is type(before) and kind.parameters == before.parameters)


def with_leaf_types_of(kind: _Kind, other: ColumnType) -> _Kind:
    """Returns a type with the leaf types of another, where that has the leaf. Both types have ids."""
    by_id = {part.field_id: part for part in other.parts}

    def stored(part: Field) -> Field:
        same = by_id.get(part.field_id)
        if same is None:
            return part
        return dataclasses.replace(
            part, type=with_leaf_types_of(part.type, same.type) if part.type.parts else same.type
        )

    return with_parts(kind, [stored(part) for part in kind.parts])


def widened_leaves(name: str, narrow: ColumnType, wide: ColumnType) -> list[tuple[str, ColumnType, ColumnType]]:
    """Returns the leaves with other types in two types with ids: the path, and both types."""
    leaves = {part.field_id: part.type for _, part in paths_of(name, narrow) if not part.type.parts}
    return [
        (path, leaves[part.field_id], part.type)
        for path, part in paths_of(name, wide)
        if part.field_id in leaves and leaves[part.field_id] != part.type
    ]


def leaf_words(name: str, kind: ColumnType, other: ColumnType) -> str:
    """Returns a type for people. Of a nested one only the leaves that differ from another: `account.id bigint`."""
    if not kind.parts:
        return kind.name
    return ", ".join(f"{path} {own.name}" for path, _, own in widened_leaves(name, other, kind)) or kind.name


def _with_places(parts: Sequence[Field], before: StructType) -> tuple[Sequence[Field], Sequence[DroppedField]]:
    """Returns the fields of a struct and its dropped ones. A new field takes the place of a dropped one of its name."""
    known = {part.field_id for part in parts}
    gone = [
        DroppedField(part.place, part.stored_name, part.glue_type(whole=True))
        for part in before.fields
        if part.field_id not in known
    ]
    dropped = {part.name: part for part in (*before.dropped, *gone)}
    fields = []
    for part in parts:
        place = dropped.pop(part.name, None) if not part.field_id else None
        fields.append(dataclasses.replace(part, in_place_of=place.place) if place else part)
    return fields, list(dropped.values())


def parts_differ(kind: ColumnType, before: ColumnType) -> bool:
    """Whether parts are added, dropped, renamed, or have another type. `kind` has the ids of parts that go on."""
    names = [{part.field_id: path for path, part in paths_of("", one)} for one in (kind, before)]
    return stored_form(kind) != stored_form(before) or names[0] != names[1]


def lost_parts(name: str, kind: ColumnType, before: ColumnType) -> list[str]:
    """Returns the paths of stored parts that a type of a file drops or renames."""
    kept = {part.field_id: path for path, part in paths_of(name, continued(kind, before))}
    return [path for path, part in paths_of(name, before) if kept.get(part.field_id) != path]


def shorter_parts(name: str, kind: ColumnType, before: ColumnType) -> bool:
    """Whether a part has a smaller length than values in objects may have."""
    return any(
        is_shorter(part.length, same.length) or shorter_parts(path, part.type, same.type)
        for path, part, same in _pairs(name, kind, before)
    )


@dataclasses.dataclass(frozen=True)
class HeldParts:
    """Names of dropped fields in objects, seen from one column or part with the id `own_id`."""

    own_id: int
    table: str
    held: Mapping[str, HeldName]

    def within(self, part: Field) -> HeldParts:
        """Returns the same names, seen from a part."""
        return dataclasses.replace(self, own_id=part.field_id)

    def problem(self, path: str, name: str) -> str | None:
        """Returns why a new field cannot have the name of a dropped one yet."""
        held = self.held.get(key_of(self.own_id, name))
        return None if held is None else taken(self.table, path, held, what="field")


def key_of(parent: int, name: str) -> str:
    """Returns the key of a field's name in objects, in the struct with the id `parent`. No column has such a name."""
    return f"{parent}.{name}"


def reused_names(kind: ColumnType, before: ColumnType, own_id: int) -> Iterator[str]:
    """Yields the keys of names of dropped fields that new fields of a type of a file are to have."""
    followed = followed_by_name(kind.parts, before.parts) if type(kind) is type(before) else {}
    dropped = {part.name for part in before.dropped} if isinstance(before, StructType) else set()
    yield from (key_of(own_id, part.name) for part in kind.parts if part.name not in followed and part.name in dropped)
    for part in kind.parts:
        if part.name in followed:
            same = followed[part.name]
            yield from reused_names(part.type, same.type, same.field_id)


def part_problems(path: str, kind: ColumnType, before: ColumnType, held: HeldParts) -> Iterator[str]:
    """Yields why the parts of a type of a file cannot continue those of the stored type, both at `path`."""
    if isinstance(kind, StructType) and isinstance(before, StructType):
        yield from _name_problems(path, kind, before, held)
    for below, part, same in _pairs(path, kind, before):
        if type(part.type) is type(same.type) and part.type.parts:
            yield from part_problems(below, part.type, same.type, held.within(same))
        elif not _keeps_its_id(part.type, same.type):
            yield f"{below} is {same.type.name} and cannot become {part.type.name}; {_instead(kind)}"
        elif is_shorter(part.length, same.length):
            yield (
                f"{below} would be shorter than values in objects may be, and cannot be cut from {same.length} to "
                f"{part.length}; {_instead(kind)}"
            )


def _pairs(path: str, kind: ColumnType, before: ColumnType) -> Iterator[tuple[str, Field, Field]]:
    """Yields the parts that go on: the path, the part of the file, and the stored one."""
    if type(kind) is not type(before):
        return
    followed = followed_by_name(kind.parts, before.parts)
    for part in kind.parts:
        if part.name in followed:
            yield path_below(path, kind, part), part, followed[part.name]


def _instead(kind: ColumnType) -> str:
    return f"add a {'field of another name, or a ' if isinstance(kind, StructType) else ''}column instead"


def _name_problems(path: str, kind: StructType, before: StructType, held: HeldParts) -> Iterator[str]:
    """Yields names that a new or renamed field cannot have."""
    followed = followed_by_name(kind.parts, before.parts)
    by_was = _rivals(kind)
    stored = {part.stored_name: part for part in before.fields}
    dropped = {part.name for part in before.dropped}
    for part in kind.fields:
        below, same = path_below(path, kind, part), followed.get(part.name)
        if same is not None and same.name == part.name:
            yield from _no_former_name(path, part, same, kind, before)
            continue
        holder = stored.get(part.name)
        if same is None and part.was is not None:
            yield f"`was: {part.was}` of {below} names no field of {path}{_meant(part.was, before)}; remove `was`"
        elif same is not None and len(by_was[same.name]) > 1:
            yield f"{' and '.join(by_was[same.name])} of {path} say `was: {same.name}`; only one of them can"
        elif holder is not None and holder is not same:
            in_file = {item.name for item in followed.values()}
            way_out = "" if holder.name in in_file else f", or say `was: {holder.name}` to rename {path}.{holder.name}"
            yield (
                f"{below} cannot be added: {part.name} is the name of {path}.{holder.name} in objects and in Glue; "
                f"choose another name{way_out}"
            )
        elif same is not None and part.name in dropped:
            yield f"{below} was another field, which Glue shows under that name; choose another name"
        elif problem := held.problem(below, part.name):
            yield problem


def _no_former_name(path: str, part: Field, same: Field, kind: StructType, before: StructType) -> Iterator[str]:
    """Yields why `was` cannot stay at a field that already has its name.

    If `was` names another stored field, it would be a rename to a taken name. If it names the implied key, the field
    would be read from another key.
    """
    if part.was is None:
        return
    names = {item.name for item in before.fields} - {item.name for item in kind.fields}
    if part.was in names:
        yield renamed_to_taken(f"{path}.{part.was}", f"{path}.{part.name}", "field")
    elif part.source == part.was != (same.source or same.name):
        yield read_from_former(f"{path}.{part.name}", part.was)


def _rivals(kind: StructType) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for part in kind.fields:
        if part.was is not None:
            found.setdefault(part.was, []).append(part.name)
    return found


def _meant(name: str, before: StructType) -> str:
    return did_you_mean(name, [part.name for part in before.fields])
