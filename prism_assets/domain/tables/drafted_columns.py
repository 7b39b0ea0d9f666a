"""Columns of a drafted table file: from the evidence of a sample to the lines of the file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import yaml

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.type_names import KEY
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    ColumnType,
    Field,
    JsonType,
    StringType,
    StructType,
    part_count,
)
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.service_limits import MOST_PARTS
from prism_assets.domain.streams.sources import source_of_key
from prism_assets.domain.streams.survey import KeyEvidence, Survey
from prism_assets.domain.tables.drafted_parts import is_short, length_of_texts, losses_in, names_for, nested_type
from prism_assets.domain.tables.drafted_types import comment_on, leaf_type, wide_type

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class DraftedColumn:
    """A column of a draft. `str` returns its lines for a table file."""

    name: str
    key: str
    """The key in the lines. With `value`, only the name."""
    type: ColumnType
    comment: str
    """The evidence in the sample."""
    length: int | None = None
    time_unit: str | None = None
    """The unit of unix times."""
    required: bool = False
    value: str | None = None
    """The expression of a computed column."""
    source: str | None = None
    """The source in the notation of table files, for anything but a key."""
    losses: tuple[str, ...] = ()
    """Which values of the sample are cut or null, with their paths."""

    def column(self) -> Column:
        """Returns the column defined by this line."""
        return Column(
            name=self.name,
            type=self.type,
            source=self.source or self.key,
            sources=(self.source,) if self.source else (),
            length=(self.length or DEFAULT_LENGTH) if self.type.takes_length else None,
            time_unit=None if self.time_unit == "seconds" else self.time_unit,
            required=self.required,
            value=self.value,
        )

    def __str__(self) -> str:
        read = self.source or (source_of_key(self.key) if self.key != self.name else None)
        options: _Options = {
            "name": self.name,
            "source": read,
            "length": (self.length or DEFAULT_LENGTH) if self.type.takes_length else None,
            "time_unit": self.time_unit,
            "required": self.required or None,
            "value": self.value,
        }
        first, *more = _entry(options, self.type, "- ")
        return "\n".join([f"  {first}  # {self.comment}", *(f"  {line}" for line in more)])


def quoted(text: str) -> str:
    """Returns text for a YAML file, quoted and escaped only if necessary."""
    if _BARE.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    written: str = yaml.safe_dump(text, default_style='"', width=10_000_000, allow_unicode=text.isprintable())
    return written.strip()


def field_line(part: Field, comment: str) -> str:
    """Returns the lines of a field for `fields` in a table file."""
    first, *more = _field_entry(part)
    return "\n".join([f"  {first}  # {comment}", *(f"  {line}" for line in more)])


_Options = dict[str, str | int | bool | None]
_ORDER = ("name", "type", "source", "length", "time_unit", "required", "value")


def _entry(options: _Options, kind: ColumnType, begin: str) -> list[str]:
    """Returns the lines of a column or a part: one line, or the long form for a type with keys of its own.

    `begin` stands before the first line, and more lines are indented as deep.
    """
    short = not kind.parts or is_short(kind)
    given = {**options, "type": kind.name if short else kind.keyword}
    if given.get("time_unit") == "seconds":
        given["time_unit"] = None
    words = [f"{name}: {_word(given[name], name)}" for name in _ORDER if given.get(name) is not None]
    if short:
        return [f"{begin}{{{', '.join(words)}}}"]
    indent = " " * len(begin)
    first, *more = words
    return [f"{begin}{first}", *(f"{indent}{line}" for line in (*more, *_parts(kind)))]


def _field_entry(part: Field) -> list[str]:
    return _entry({"name": part.name, **_options(part)}, part.type, "- ")


def _word(value: str | int | bool | None, name: str) -> str:
    if value is True:
        return "true"
    if isinstance(value, int):
        return str(value)
    text = value or ""
    return text if name == "type" and "<" not in text and "," not in text else quoted(text)


def _parts(kind: ColumnType) -> Iterator[str]:
    if isinstance(kind, StructType):
        yield "fields:"
        for part in kind.fields:
            yield from (f"  {line}" for line in _field_entry(part))
        return
    for part in kind.parts:
        if part.name == KEY:
            yield f"{KEY}: {{length: {part.length}}}"
            continue
        lines = _entry(_options(part), part.type, "")
        if len(lines) == 1:
            yield f"{part.name}: {lines[0]}"
        else:
            yield f"{part.name}:"
            yield from (f"  {line}" for line in lines)


def _options(part: Field) -> _Options:
    read = None if part.source in (None, part.name) else source_of_key(part.source or "")
    return {"source": read, "length": part.length, "time_unit": part.time_unit}


def column_for(
    evidence: KeyEvidence,
    name: str,
    lines: int | None = None,
    *,
    is_time: bool = False,
    wide: bool = False,
) -> DraftedColumn:
    """Returns the column for a key of that many `lines`, or for one around records.

    `wide` columns leave room for values beyond a small sample, and keep nested values as json.
    """
    nested = None if is_time or wide else nested_type(evidence)
    kind, unit = (nested, None) if nested else leaf_type(evidence, name, is_time=is_time)
    if wide:
        kind, unit = wide_type(evidence, kind), None
    return DraftedColumn(
        name=name,
        key=evidence.key,
        type=kind,
        length=None if wide else length_of_texts(evidence, kind),
        time_unit=unit,
        required=is_time,
        comment=comment_on(evidence, name, kind, unit, lines),
        # Lines without their time are quarantined.
        losses=() if is_time else tuple(losses_in(evidence, kind, name)),
    )


def within_parts(columns: Sequence[DraftedColumn], sample: Survey) -> list[DraftedColumn]:
    """Returns the columns with at most 1,000 parts together: those with most parts become json."""
    kept = list(columns)
    sizes = [part_count(column.type) for column in kept]
    while sum(sizes) > MOST_PARTS:
        place = sizes.index(max(sizes))
        column, sizes[place] = kept[place], 0
        comment = f"{column.comment}; json because a table has at most {MOST_PARTS:,} fields inside columns"
        losses = tuple(losses_in(_evidence(column, sample), JsonType(), column.name))
        kept[place] = replace(column, type=JsonType(), length=DEFAULT_LENGTH, comment=comment, losses=losses)
    return kept


def _evidence(column: DraftedColumn, sample: Survey) -> KeyEvidence:
    return sample.around[column.source] if column.source else sample.keys[column.key]


def column_names(keys: Collection[str], known: Collection[str] = ()) -> dict[str, str]:
    """Returns a unique valid name for each key, in snake case, with a number if it is taken."""
    return names_for(keys, (DAY_COLUMN, *known))


def draft_columns(
    keys: Collection[str], sample: Survey, known: Collection[str], *, wide: bool = False
) -> list[DraftedColumn]:
    """Returns columns for keys of an existing table whose column names are `known`. Keys without a line become strings.

    `wide` columns leave room for values beyond a small sample.
    """
    names = column_names(keys, known)
    return [
        column_for(sample.keys[key], names[key], sample.lines, wide=wide)
        if key in sample.keys
        else DraftedColumn(name=names[key], key=key, type=StringType(), comment="in no current line")
        for key in keys
    ]
