"""Tries a table file on a sample: the fate of every line, and differences from another definition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from prism_assets.domain.columns.column import SENSITIVE
from prism_assets.domain.days.lengths import length_warnings
from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.domain.files.keys import TableKeys, spool_name
from prism_assets.domain.names import nearest
from prism_assets.domain.records.change_log import changes_of
from prism_assets.domain.streams.format import format_in_file
from prism_assets.domain.streams.sources import FACTS, MESSAGE_FACTS
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat, Stream
from prism_assets.domain.streams.topic import Topic
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import ConvertTask, ValueErrors
from prism_assets.drafting.differences import Differences, differences
from prism_assets.drafting.sample_lines import MOST_BYTES, SampleObject, find_objects
from prism_assets.drafting.shape import format_of
from prism_assets.kernels import times
from prism_assets.kernels.expressions.session import Secrets, secret_of_worker
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.table_check import problems_of
from prism_assets.kernels.trial import LIMITS, ObjectTrial, SetAside, plain, try_object
from prism_assets.objectstore.config import StoreConfig

LINES = 10_000
ROWS = 5
_SHOWN_OF_A_REASON = 3
_LONGEST_TEXT = 200


@dataclass(frozen=True, kw_only=True)
class TriedRow:
    """One row and the place of its line."""

    object: str
    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TriedLine:
    """One quarantined line."""

    object: str
    line: int | None
    reason: str
    column: str | None
    text: str | None
    """The beginning of the line with sensitive values masked, or None if the mask cannot be applied."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a table file on a sample."""

    table: str
    objects: int
    lines: int
    rows: int
    filtered: int
    elsewhere: int
    """Lines that the route of the stream gives to other tables."""
    quarantined: Mapping[str, int]
    """Counts of lines by reason."""
    value_errors: tuple[ValueErrors, ...]
    warnings: tuple[str, ...]
    undefined: Mapping[str, str]
    """Keys that no column reads, each with a place where it occurs."""
    empty_columns: Mapping[str, str | None]
    """Columns that are null in every row. The value is a similar key or fact, such as `@object`, that was perhaps
    meant.
    """
    days: Mapping[str, int]
    """Counts of rows by event date."""
    rows_shown: tuple[TriedRow, ...]
    """The first rows."""
    lines_shown: tuple[TriedLine, ...]
    """The first quarantined lines."""
    differences: Differences | None
    seconds: float
    problem: str | None
    """Why the table file should not be applied unchanged."""


def read_table(path: Path, stream: str | None = None) -> TableDefinition:
    """Reads a table file and checks its expressions. For a join table, returns the log of its changes.

    `stream` names the stream for samples outside every stream's prefix; it becomes the first. Raises DefinitionError
    with every problem, or WrongUse if the file or the stream does not exist.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = parse_table_file(text, str(path), lambda name: (path.parent / name).read_bytes())
    except UnicodeDecodeError:
        raise DefinitionError(f"{path}:1: the file is not UTF-8") from None
    except OSError as error:
        raise WrongUse(f"{path}: the table file cannot be read: {error.strerror}") from None
    table = table if table.join is None else changes_of(table)
    if problems := problems_of(table):
        raise DefinitionError("\n".join(problems))
    return table if stream is None else _beginning_with(table, stream, path)


def _beginning_with(table: TableDefinition, name: str, path: Path) -> TableDefinition:
    chosen = [stream for stream in table.streams if stream.name == name]
    if not chosen:
        raise WrongUse(f"{path}: no stream is called {name}: choose of {', '.join(s.name for s in table.streams)}")
    return replace(table, streams=(*chosen, *(stream for stream in table.streams if stream.name != name)))


def try_table(
    config: StoreConfig,
    table: TableDefinition,
    place: str,
    *,
    now: datetime,
    against: TableDefinition | None = None,
    lines: int = LINES,
    rows: int = ROWS,
    limits: Limits = LIMITS,
) -> Trial:
    """Converts the first lines of a sample and writes nothing.

    Objects count as received now, and local files as objects of the table's first stream. `lines` limits the lines read
    in all, `rows` the rows shown. Raises WrongUse for a sample without lines, and the errors of a conversion.
    """
    started = time.perf_counter()
    objects = find_objects(place, config)
    tried = try_objects(table, objects, now, lines, limits)
    found = sum(item.lines_in for item in tried)
    quarantined = Counter[str]()
    for item in tried:
        quarantined.update({count.reason: count.line_count for count in item.quarantined})
    if not found:
        reasons = ", ".join(quarantined)
        what = f": {reasons}" if reasons else "; take a sample of JSON objects, one a line, plain or in gzip or zstd"
        raise WrongUse(f"{place} holds no line{what}")
    names = [item.place for item in objects]
    value_errors = _value_errors(tried)
    compared = None
    if against is not None:
        compared = differences(against.version, names, try_objects(against, objects, now, lines, limits), tried)
    return Trial(
        table=str(table.name),
        objects=len(objects),
        lines=found,
        rows=sum(len(item.numbers) for item in tried),
        filtered=sum(item.filtered for item in tried),
        elsewhere=sum(item.elsewhere for item in tried),
        quarantined={reason: quarantined[reason] for reason in sorted(quarantined)},
        value_errors=value_errors,
        warnings=length_warnings(table.columns, value_errors),
        undefined=_undefined(names, tried),
        empty_columns=_empty_columns(table, tried),
        days=_days(tried),
        rows_shown=tuple(_first_rows(names, tried, rows)),
        lines_shown=tuple(_first_lines(names, tried)),
        differences=compared,
        seconds=round(time.perf_counter() - started, 3),
        problem=_problem(table, found, tried, quarantined, objects),
    )


def try_objects(
    table: TableDefinition,
    objects: Sequence[SampleObject],
    now: datetime,
    lines: int = LINES,
    limits: Limits = LIMITS,
    secret_of: Secrets = secret_of_worker,
) -> list[ObjectTrial]:
    """Converts the first lines of each object as if it arrived now, `lines` lines in all."""
    first = first_lines(len(objects), lines)
    return [
        try_object(_task(table, item, now), table, item.chunks, first, limits=limits, secret_of=secret_of)
        for item in objects
    ]


def first_lines(objects: int, lines: int = LINES) -> FirstLines:
    """Returns how many bytes and lines to read of each object, so that all together stay within the limits."""
    return FirstLines(MOST_BYTES // objects, max(1, -(-lines // objects)))


def placed(table: TableDefinition, item: SampleObject) -> tuple[Stream, str, str]:
    """Returns the stream of a sample's object, and the bucket and key that the object would have there."""
    stream = table.streams[0]
    bucket, key = item.bucket or stream.bucket, item.key if item.bucket else f"{stream.key_prefix}{item.key}"
    for other in table.streams:
        if other.holds(bucket, key):
            return other, bucket, key
    return stream, bucket, key if stream.topic is None else place_of_sample(table, stream.topic)


def place_of_sample(table: TableDefinition, topic: Topic) -> str:
    """Returns a key of the topic's spool, for plain lines and for spool objects that lie elsewhere."""
    name = spool_name("sample", 0, 0, "0" * 16)
    return TableKeys("", "", table.name).spool(topic, date(1970, 1, 1), name)


def _task(table: TableDefinition, item: SampleObject, now: datetime) -> ConvertTask:
    """Returns the task that discovery would make for the object, under the stream with a matching prefix."""
    stream, bucket, key = placed(table, item)
    return ConvertTask(
        staging_object_id=0,
        bucket=bucket,
        key=key,
        etag=None,
        content_length=0,
        received=now,
        sent=item.stored or now,
        stream_name=stream.name,
        delayed_dates=frozenset(),
        table_id=0,
        definition_version=0,
    )


def _value_errors(tried: Sequence[ObjectTrial]) -> tuple[ValueErrors, ...]:
    counts = Counter[tuple[str, str]]()
    for item in tried:
        counts.update({(error.column, error.reason): error.count for error in item.value_errors})
    return tuple(
        ValueErrors(column=column, reason=reason, count=count) for (column, reason), count in sorted(counts.items())
    )


def _undefined(names: Sequence[str], tried: Sequence[ObjectTrial]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, item in zip(names, tried, strict=True):
        for field in item.undefined:
            found.setdefault(field.path, f"{name}:{field.line}")
    return dict(sorted(found.items()))


def _empty_columns(table: TableDefinition, tried: Sequence[ObjectTrial]) -> dict[str, str | None]:
    if not any(len(item.numbers) for item in tried):
        return {}
    facts = (*FACTS, *MESSAGE_FACTS) if table.reads_topics else FACTS
    keys = [*facts, *(field.key for item in tried for field in item.undefined if not field.within)]
    return {
        column.name: nearest(column.source, keys) if column.value is None else None
        for column in table.columns
        if all(item.rows[column.name].null_count == item.rows.num_rows for item in tried)
    }


def _days(tried: Sequence[ObjectTrial]) -> dict[str, int]:
    counts = Counter[int]()
    for item in tried:
        counts.update(item.days.tolist())
    return {times.to_date(day).isoformat(): counts[day] for day in sorted(counts)}


def _first_rows(names: Sequence[str], tried: Sequence[ObjectTrial], most: int) -> Iterator[TriedRow]:
    for name, item in zip(names, tried, strict=True):
        sensitive = item.layout.program.sensitive
        taken = min(most, len(item.numbers))
        most -= taken
        for number, row in zip(item.numbers.tolist(), item.rows.slice(0, taken).to_pylist(), strict=False):
            values = {key: _shown(value, key in sensitive) for key, value in row.items()}
            yield TriedRow(object=name, line=number, values=values)


def _shown(value: Any, is_sensitive: bool) -> Any:
    return SENSITIVE if is_sensitive and value is not None else plain(value)


def _first_lines(names: Sequence[str], tried: Sequence[ObjectTrial]) -> Iterator[TriedLine]:
    """Returns the first quarantined lines of each reason."""
    seen = Counter[str]()
    for name, item in zip(names, tried, strict=True):
        for line in item.set_aside:
            seen[line.reason] += 1
            if seen[line.reason] <= _SHOWN_OF_A_REASON:
                yield _tried_line(name, line)


def _tried_line(name: str, line: SetAside) -> TriedLine:
    text = line.text
    if text is not None and len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}…"
    return TriedLine(object=name, line=line.line, reason=line.reason, column=line.column, text=text)


def _problem(
    table: TableDefinition,
    lines: int,
    tried: Sequence[ObjectTrial],
    quarantined: Mapping[str, int],
    objects: Sequence[SampleObject],
) -> str | None:
    """Applies the rule of the check quarantine_rate to the table's own lines of the sample."""
    elsewhere = sum(item.elsewhere for item in tried)
    lines -= elsewhere
    aside, limit = sum(quarantined.values()), table.limits.quarantine_rate
    if aside <= limit * lines and any(len(item.numbers) for item in tried):
        return None
    advice = _advice(table, objects)
    if aside > limit * lines:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in quarantined.items() if count)
        share = f"{aside:,} of {counted(lines, 'line is', 'lines are')} quarantined"
        return f"{table.name}: {share}, and the limit of its checks is {limit:.2%}: {reasons}{advice}"
    if not lines:
        return f"{table.name}: no line of the sample is a row: `route` gives all {elsewhere:,} to other tables"
    whose = " of its own" if elsewhere else ""
    return f"{table.name}: no line{whose} of the sample is a row: `keep` leaves all of them out{advice}"


def _advice(table: TableDefinition, objects: Sequence[SampleObject]) -> str:
    """Returns the format to write in the table file, if the objects have another one."""
    form = format_of([item.chunks for item in objects])
    if form is None or any(stream.format == form or stream.message for stream in table.streams):
        return ""
    if not isinstance(form, DocumentFormat) and any(stream.format is not None for stream in table.streams):
        return ""  # the file has a format for its lines, and may know better
    match form:
        case DocumentFormat():
            what = "documents"
        case ParquetFormat():
            what = "rows of Parquet"
        case _:
            what = "lines of text"
    return f"; the objects hold {what}: write `format: {format_in_file(form)}` below the stream"
