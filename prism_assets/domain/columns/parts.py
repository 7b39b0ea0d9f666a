"""Parts of nested columns: their stored documents, their ids, and their paths.

Stored definitions have all parts of a column in one flat list, each after the part around it, so that SQL needs no
recursion.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from prism_assets.domain.columns.type_names import nested_keyword, type_named
from prism_assets.domain.columns.types import (
    ColumnType,
    DroppedField,
    Field,
    ListType,
    MapType,
    StructType,
    all_parts,
)
from prism_assets.domain.tables.stored_documents import check_known, read_part

Document = dict[str, Any]
_Kind = TypeVar("_Kind", bound=ColumnType)
_OPTIONS = ("source", "length", "source_offset", "time_unit", "sensitive", "stored_as", "in_place_of", "evolved")
"""Fields of a part that documents leave out without a value."""


def to_documents(kind: ColumnType, parent: int) -> Iterator[Document]:
    """Yields the documents of all parts. `parent` is the id of the column, or of the part around them."""
    for part in kind.parts:
        options = {name: value for name in _OPTIONS if (value := getattr(part, name))}
        document = {"id": part.field_id, "parent": parent, "name": part.name, "type": part.type.keyword}
        yield {**document, **options, **part.type.parameters}
        yield from to_documents(part.type, part.field_id)


def dropped_documents(kind: ColumnType, parent: int) -> Iterator[Document]:
    """Yields the documents of all dropped fields. `parent` is the id of the column, or of the part around them.

    They are no parts: SQL that lists parts does not see them.
    """
    for gone in kind.dropped if isinstance(kind, StructType) else ():
        yield {"parent": parent, **vars(gone)}
    for part in kind.parts:
        yield from dropped_documents(part.type, part.field_id)


def from_documents(
    keyword: str,
    column_id: int,
    documents: Sequence[Mapping[str, Any]],
    what: str,
    dropped: Sequence[Mapping[str, Any]] = (),
) -> ColumnType:
    """Returns the nested type of a stored column. Raises InvariantBroken for unknown options, ValueError for types."""
    return _Documents(_by_parent(documents), _by_parent(dropped), what).type_of(keyword, column_id, {})


def _by_parent(documents: Sequence[Mapping[str, Any]]) -> Mapping[int, Sequence[Mapping[str, Any]]]:
    children: dict[int, list[Mapping[str, Any]]] = {}
    for document in documents:
        children.setdefault(document["parent"], []).append(document)
    return children


@dataclasses.dataclass(frozen=True)
class _Documents:
    """The documents of one column by the id of the part around them."""

    parts: Mapping[int, Sequence[Mapping[str, Any]]]
    dropped: Mapping[int, Sequence[Mapping[str, Any]]]
    what: str

    def type_of(self, keyword: str, own_id: int, document: Mapping[str, Any]) -> ColumnType:
        """Returns the type of the column, or of a part."""
        nested = nested_keyword(keyword)
        if nested is None:
            return type_named(keyword, document)
        parts = [self._part_of(child) for child in self.parts.get(own_id, ())]
        if nested is StructType:
            return StructType(tuple(parts), tuple(self._dropped_in(own_id)))
        return MapType(*parts) if nested is MapType else ListType(*parts)

    def _part_of(self, document: Mapping[str, Any]) -> Field:
        kind = self.type_of(document["type"], document["id"], document)
        of_the_type = {"id", "parent", "type", *kind.parameters}
        values = {name: value for name, value in document.items() if name not in of_the_type}
        check_known(Field, values, self.what)
        return Field(type=kind, field_id=document["id"], **values)

    def _dropped_in(self, own_id: int) -> Iterator[DroppedField]:
        for document in self.dropped.get(own_id, ()):
            yield read_part(DroppedField, {key: document[key] for key in document if key != "parent"}, self.what)


def with_ids(kind: _Kind, next_id: Callable[[], int]) -> _Kind:
    """Returns a type with an id for each part without one, each part before its own parts."""

    def numbered(part: Field) -> Field:
        number = part.field_id or next_id()
        return dataclasses.replace(part, field_id=number, type=with_ids(part.type, next_id))

    return with_parts(kind, [numbered(part) for part in kind.parts])


def stored_form(kind: _Kind) -> _Kind:
    """Returns a type as objects have it: without sources, lengths, notations of times, later names, dropped fields and
    the order of the file.
    """
    parts = [Field(name=part.stored_name, type=stored_form(part.type), field_id=part.field_id) for part in kind.parts]
    if isinstance(kind, StructType):
        return StructType(tuple(sorted(parts, key=lambda part: (part.field_id, part.name))))  # type: ignore[return-value]
    return with_parts(kind, parts)


def keeps_parts_of(kind: ColumnType, before: ColumnType) -> bool:
    """Whether values of an earlier type can be added to objects of this one: common parts have the same name in objects
    and the same type, and no such name belongs to another part.
    """
    if not kind.parts or type(kind) is not type(before):
        return kind == before
    by_id = {part.field_id: part for part in before.parts}
    ids = {part.stored_name: part.field_id for part in before.parts}
    return all(
        ids.get(part.stored_name, part.field_id) == part.field_id
        and (part.field_id not in by_id or _goes_on(part, by_id[part.field_id]))
        for part in kind.parts
    )


def _goes_on(part: Field, before: Field) -> bool:
    return part.stored_name == before.stored_name and keeps_parts_of(part.type, before.type)


def with_parts(kind: _Kind, parts: Sequence[Field], dropped: Sequence[DroppedField] | None = None) -> _Kind:
    """Returns the same type with other parts, and a struct with other dropped fields if they are given."""
    match kind:
        case StructType():
            gone = kind.dropped if dropped is None else tuple(dropped)
            return dataclasses.replace(kind, fields=tuple(parts), dropped=gone)
        case ListType():
            return dataclasses.replace(kind, element=parts[0])
        case MapType():
            return dataclasses.replace(kind, key=parts[0], value=parts[1])
    return kind


def paths_of(name: str, kind: ColumnType) -> Iterator[tuple[str, Field]]:
    """Yields all parts of a column with their paths: `user.id`, `tags[]`, `labels{key}`, and `labels{}` for values."""
    for part in kind.parts:
        path = path_below(name, kind, part)
        yield path, part
        yield from paths_of(path, part.type)


def path_below(path: str, kind: ColumnType, part: Field) -> str:
    """Returns the path of a part of a type at `path`."""
    match kind:
        case ListType():
            return f"{path}[]"
        case MapType():
            return f"{path}{{key}}" if part == kind.key else f"{path}{{}}"
    return f"{path}.{part.name}"


def with_fields(kind: _Kind, path: str, new: Mapping[str, Sequence[Field]]) -> _Kind:
    """Returns a type at a path with new fields at the end of structs, by the paths of these."""
    parts = [
        dataclasses.replace(part, type=with_fields(part.type, path_below(path, kind, part), new)) for part in kind.parts
    ]
    return with_parts(kind, [*parts, *new.get(path, ())]) if parts else kind


def path_of_key(within: str, key: str) -> str:
    """Returns the path of a key in the struct at a path; `""` is the line itself."""
    return f"{within}.{key}" if within else key


def is_in_map(path: str) -> bool:
    """Whether a path leads through the values of a map."""
    return "{" in path


def leaf_fields(name: str, kind: ColumnType) -> Iterator[tuple[tuple[str, ...], Sequence[Field]]]:
    """Yields the leaves outside of lists and maps: the names and the parts from the column down."""
    if not isinstance(kind, StructType):
        return
    for part in kind.fields:
        if not part.type.parts:
            yield (name, part.name), (part,)
        for names, below in leaf_fields(part.name, part.type):
            yield (name, *names), (part, *below)


def is_sensitive(kind: ColumnType) -> bool:
    """Whether a part is sensitive."""
    return any(part.sensitive for part in all_parts(kind))
