"""Reads the columns of a table file and its row conditions: checks each entry, and translates it."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.names import names_in_file, unknown_column
from prism_assets.domain.columns.part_entries import (
    check_column_type,
    has_expression,
    read_options,
    read_type,
    read_was,
)
from prism_assets.domain.columns.parts import with_ids
from prism_assets.domain.columns.types import ColumnType, JsonType, StringType
from prism_assets.domain.names import DAY_COLUMN, NAME_RULE, is_name
from prism_assets.domain.records.joins import WINNER, Member
from prism_assets.domain.service_limits import GLUE_COMMENT, length_of
from prism_assets.domain.streams import reasons
from prism_assets.domain.streams.sources import Key, Pattern, Rest, keys_of, parse_source
from prism_assets.domain.streams.stream import StreamColumn
from prism_assets.domain.tables.file_keys import LONGEST_EXPRESSION, known_keys
from prism_assets.domain.tables.options import Rejection
from prism_assets.domain.tables.row_program import KEEP_FIELD, name_field, reject_field, source_field, value_field
from prism_assets.domain.tables.yaml_mapping import YamlMapping, check_unique, is_unstorable, plain, read_name

_LONGEST_PATTERN = 200
_NO_ZONE_OFFSET = (
    "it changes nothing: times are stored as instants in UTC; remove the field, and say with source_offset how to read "
    "times without an offset, and with partition.timezone where days begin"
)
_NOT_IN_A_LINE = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories


@dataclass(frozen=True)
class ColumnEntries:
    """The contents of `columns`, `keep` and `reject` of a file."""

    stored: tuple[Column, ...]
    unstored: tuple[Column, ...]
    computed: tuple[str, ...]
    """Names of the columns with a value, in order."""
    keep: str | None
    reject: tuple[Rejection, ...]
    places: dict[str, str]
    """The position of each column and expression: `path:line: field`."""
    members: tuple[Member, ...]
    """Columns in a group of a join table."""
    entries: dict[str, YamlMapping]
    """Mappings of the file by column name."""

    def with_required(self, *names: str) -> tuple[Column, ...]:
        """Returns the stored columns with some made required: the partition column and keys."""
        return tuple(replace(column, required=True) if column.name in names else column for column in self.stored)


def read_columns(top: YamlMapping) -> ColumnEntries:
    """Reads every key of the file that describes how a line becomes a row."""
    entries = top.sequence("columns")
    check_unique(entries, "name", lambda entry: str(entry.read("name", str, "", "text")))
    columns = [(_column(entry), entry.flag("stored", True)) for entry in entries]
    places = {
        field(column.name): entry.place(key)
        for entry, (column, _) in zip(entries, columns, strict=True)
        for key, field in (("value", value_field), ("source", source_field))
        if key in entry.children
    }
    places |= {
        name_field(column.name): entry.place("name") for entry, (column, _) in zip(entries, columns, strict=True)
    }
    keep = expression(top, "keep") if "keep" in top.children else None
    rejections = _rejections(top, places)
    return ColumnEntries(
        stored=tuple(column for column, stored in columns if stored),
        unstored=tuple(_with_own_ids(column) for column, stored in columns if not stored),
        computed=tuple(column.name for column, _ in columns if column.value is not None),
        keep=keep,
        reject=rejections,
        places={**places, KEEP_FIELD: top.place("keep")},
        members=tuple(
            Member(column=column.name, group=entry.text("group"), merge=entry.text("merge", WINNER))
            for entry, (column, _) in zip(entries, columns, strict=True)
            if "group" in entry.children
        ),
        entries={column.name: entry for entry, (column, _) in zip(entries, columns, strict=True)},
    )


def read_stream_columns(
    stream: YamlMapping, entries: ColumnEntries, url: str
) -> tuple[tuple[StreamColumn, ...], dict[str, str]]:
    """Returns the columns a stream reads or computes differently, and the positions of their expressions, by `url
    field`.
    """
    if "columns" not in stream.children:
        return (), {}
    known = {column.name: column for column in (*entries.stored, *entries.unstored)}
    found = stream.sequence("columns")
    check_unique(found, "name", lambda entry: str(entry.read("name", str, "", "text")))
    columns, places = [], dict[str, str]()
    for entry in found:
        entry.only(known_keys("streams[].columns[]"))
        name = read_name(entry, "name")
        if name not in known:
            near = unknown_column(name, known, names_in_file(known.values()))
            entry.complain("name", f"{name} is not among the columns of the table{near}")
        elif not {"source", "value"} & entry.children.keys():
            entry.complain("source", "is missing; say with source or value what the column is in this stream")
        kind = known[name].type if name in known else StringType()
        columns.append(StreamColumn(name=name, **_origin(entry, name, kind)))
        for key, field in (("value", value_field(name)), ("source", source_field(name))):
            if key in entry.children:
                places[f"{url} {field}"] = entry.place(key)
    return tuple(columns), places


def _rejections(top: YamlMapping, places: dict[str, str]) -> tuple[Rejection, ...]:
    if "reject" not in top.children:
        return ()
    rejections = []
    for number, entry in enumerate(top.sequence("reject")):
        entry.only(known_keys("reject[]"))
        reason: str = entry.text("reason")
        if reason in reasons.ALL:
            entry.complain("reason", f"{reason} is a built-in reason; choose another")
        elif "reason" in entry.children and not is_name(reason):
            entry.complain("reason", NAME_RULE)
        places[reject_field(number)] = entry.place("when")
        rejections.append(Rejection(when=expression(entry, "when"), reason=reason))
    return tuple(rejections)


def expression(entry: YamlMapping, key: str) -> str:
    """Returns an SQL expression. YAML's true, false and numbers are also expressions."""
    if key not in entry.children:
        return str(entry.text(key))
    node = entry.children[key]
    text = node.value if isinstance(node, yaml.ScalarNode) and plain(node) is not None else ""
    if not text.strip():
        entry.complain(key, "must be an SQL expression")
    elif len(text) > LONGEST_EXPRESSION:
        entry.complain(key, f"must have at most {LONGEST_EXPRESSION} characters")
    return str(text)


def _column(entry: YamlMapping) -> Column:
    entry.only(known_keys("columns[]") | {"zone_offset"})
    name = read_name(entry, "name")
    if name == DAY_COLUMN:
        entry.complain("name", f"{DAY_COLUMN} is the partition key and cannot be a column")
    kind = read_type(entry)
    entry.refuse("zone_offset", _NO_ZONE_OFFSET)
    options = read_options(entry, kind)
    required = entry.flag("required", False)
    if kind is not None and kind.parts:
        check_column_type(entry, name, kind)
        if required:
            entry.complain("required", f"a {kind} column cannot be required; reject the lines with `reject` instead")
    if required and not entry.flag("stored", True):
        entry.complain("required", "only stored columns can be required; reject the lines with `reject` instead")
    was = _was(entry, name)
    return Column(
        name=name,
        was=was,
        type=kind or StringType(),  # nobody sees a column of a file with problems
        **_origin(entry, name, kind, key=was),
        **options,
        required=required,
        description=_column_description(entry),
        sensitive=entry.flag("sensitive", False),
    )


def _with_own_ids(column: Column) -> Column:
    """Returns an unstored column with ids for its parts, by which its document and its values are put together.

    They are in no object, so they are the same in each version of the file and not from the counter of the table.
    """
    return replace(column, type=with_ids(column.type, itertools.count(1).__next__))


def _was(entry: YamlMapping, name: str) -> str | None:
    """Returns the former name of the column. It may stay in the file after the rename."""
    was = read_was(entry, name, "column")
    if was not in (None, name) and not entry.flag("stored", True):
        entry.complain("was", "only stored columns need it; this one may change its name freely")
    return was


def _origin(entry: YamlMapping, name: str, kind: ColumnType | None, *, key: str | None = None) -> dict[str, Any]:
    """Returns the origin of values: a value, one plain key, or other forms of `source` in the words of the file.

    Without any of them it is the key `key`, or the key with the column's name.
    """
    if has_expression(entry):
        if "source" in entry.children:
            entry.complain("source", "a column has a source or a value; read the key as a column of its own")
        return {"source": name, "value": expression(entry, "value")}
    texts = _source_texts(entry, key or name)
    sources = []
    for text in texts:
        try:
            sources.append(parse_source(text))
        except ValueError as error:
            entry.complain("source", str(error))
    collects = [source for source in sources if isinstance(source, Rest | Pattern)]
    if collects and not isinstance(kind, StringType | JsonType):
        type_name = kind or entry.text("type", "")
        entry.complain("source", f"several keys together are an object: make the type json, not {type_name}")
    if collects and len(texts) > 1:
        entry.complain("source", '"*" and patterns cannot be in a list of keys')
    if any(isinstance(source, Pattern) and len(source.expression) > _LONGEST_PATTERN for source in sources):
        entry.complain("source", f"a pattern must have at most {_LONGEST_PATTERN} characters")
    if any(map(is_unstorable, keys_of(sources))) and not any(map(is_unstorable, texts)):  # unless already reported
        entry.complain("source", "names a key that has a NUL or half a character in it")
    if len(sources) == 1 and isinstance(sources[0], Key):
        return {"source": sources[0].name}  # in any notation
    return {"source": ", ".join(texts), "sources": tuple(texts)}


def _source_texts(entry: YamlMapping, name: str) -> Sequence[str]:
    node = entry.children.get("source")
    if not isinstance(node, yaml.SequenceNode):
        return [entry.text("source", name) or ""]
    texts = plain(node)
    if not texts or any(not isinstance(text, str) for text in texts):
        entry.complain("source", "must be a key, or a list of keys")
        return [name]
    return list(texts)


def _column_description(entry: YamlMapping) -> str | None:
    """Returns the comment of a column in Glue: one line of at most 255 bytes."""
    text: str | None = entry.text("description", None)
    if text is None:
        return None
    if length_of(text) > GLUE_COMMENT:
        entry.complain("description", f"must have at most {GLUE_COMMENT} bytes: Glue takes no longer comment")
    if any(unicodedata.category(character) in _NOT_IN_A_LINE for character in text):
        entry.complain("description", "must be one line, without control characters")
    return text or None
