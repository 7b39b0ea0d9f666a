"""Parts of nested columns: their stored documents, their ids, and their paths.

Stored definitions have all parts of a column in one flat list, each after the part around it, so that SQL needs no
recursion.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from prism_assets.domain.columns.type_names import nested_keyword, type_named
from prism_assets.domain.columns.types import ColumnType, Field, ListType, MapType, StructType, parts_of
from prism_assets.domain.tables.documents import check_known

Document = dict[str, Any]
_Kind = TypeVar("_Kind", bound=ColumnType)
_OPTIONS = ("source", "length", "source_offset", "time_unit", "sensitive", "stored_as")
"""Fields of a part that documents leave out without a value."""


def to_documents(kind: ColumnType, parent: int) -> Iterator[Document]:
    """Yields the documents of all parts. `parent` is the id of the column, or of the part around them."""
    for part in kind.parts:
        options = {name: value for name in _OPTIONS if (value := getattr(part, name))}
        document = {"id": part.field_id, "parent": parent, "name": part.name, "type": part.type.keyword}
        yield {**document, **options, **part.type.parameters}
        yield from to_documents(part.type, part.field_id)


def from_documents(keyword: str, column_id: int, documents: Sequence[Mapping[str, Any]], what: str) -> ColumnType:
    """Returns the nested type of a stored column. Raises InvariantBroken for unknown options, ValueError for types."""
    children: dict[int, list[Mapping[str, Any]]] = {}
    for document in documents:
        children.setdefault(document["parent"], []).append(document)
    return _type_of(keyword, column_id, {}, children, what)


def _type_of(
    keyword: str,
    own_id: int,
    document: Mapping[str, Any],
    children: Mapping[int, Sequence[Mapping[str, Any]]],
    what: str,
) -> ColumnType:
    nested = nested_keyword(keyword)
    if nested is None:
        return type_named(keyword, document)
    parts = [_part_of(child, children, what) for child in children.get(own_id, ())]
    if nested is StructType:
        return StructType(tuple(parts))
    return MapType(*parts) if nested is MapType else ListType(*parts)


def _part_of(document: Mapping[str, Any], children: Mapping[int, Sequence[Mapping[str, Any]]], what: str) -> Field:
    kind = _type_of(document["type"], document["id"], document, children, what)
    of_the_type = {"id", "parent", "type", *kind.parameters}
    values = {name: value for name, value in document.items() if name not in of_the_type}
    check_known(Field, values, what)
    return Field(type=kind, field_id=document["id"], **values)


def with_ids(kind: _Kind, next_id: Callable[[], int]) -> _Kind:
    """Returns a type with an id for each part without one, each part before its own parts."""

    def numbered(part: Field) -> Field:
        number = part.field_id or next_id()
        return dataclasses.replace(part, field_id=number, type=with_ids(part.type, next_id))

    return _with_parts(kind, [numbered(part) for part in kind.parts])


def continued(kind: _Kind, before: ColumnType) -> _Kind:
    """Returns a type of a file with the ids of the stored parts of its names, and 0 for other parts."""
    if type(kind) is not type(before):
        return kind
    known = {part.name: part for part in before.parts}

    def numbered(part: Field) -> Field:
        same = known.get(part.name)
        if same is None or type(same.type) is not type(part.type) or same.type.parameters != part.type.parameters:
            return part
        return dataclasses.replace(
            part, field_id=same.field_id, stored_as=same.stored_as, type=continued(part.type, same.type)
        )

    return _with_parts(kind, [numbered(part) for part in kind.parts])


def stored_form(kind: _Kind) -> _Kind:
    """Returns a type without what objects do not have: sources, lengths, notations of times, the order of the file."""
    parts = [
        Field(name=part.name, type=stored_form(part.type), field_id=part.field_id, stored_as=part.stored_as)
        for part in kind.parts
    ]
    return _with_parts(kind, sorted(parts, key=lambda part: part.field_id) if isinstance(kind, StructType) else parts)


def _with_parts(kind: _Kind, parts: Sequence[Field]) -> _Kind:
    """Returns the same type with other parts."""
    match kind:
        case StructType():
            return dataclasses.replace(kind, fields=tuple(parts))
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
    return any(part.sensitive for part in parts_of(kind))
