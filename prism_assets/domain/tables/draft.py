"""Drafts a table file from a sample of logs: a column for each key, and the time that decides the day of a row."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from prism_assets.domain.columns.types import BigIntType, TimestampType
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import DAY_COLUMN, TableName
from prism_assets.domain.sql_quoting import quote_identifier, quote_text
from prism_assets.domain.streams.format import format_in_file
from prism_assets.domain.streams.reasons import NOT_OBJECT
from prism_assets.domain.streams.sources import step_text
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat
from prism_assets.domain.streams.survey import ACCESS_LOG_TIME, NANOSECONDS, KeyEvidence, Survey, ValueKind
from prism_assets.domain.tables.definition import FUTURE_DAYS, MOST_FUTURE_DAYS, MOST_PAST_DAYS, PAST_DAYS
from prism_assets.domain.tables.drafted_columns import (
    DraftedColumn,
    column_for,
    column_names,
    quoted,
    within_parts,
)
from prism_assets.domain.tables.drafted_parts import free_name
from prism_assets.domain.tables.drafted_types import (
    ALMOST_ALL,
    instant_of,
    is_a_version,
    is_accepted,
    is_of_access_log,
    is_time_key,
    times_in,
    unix_unit,
    written_times,
)
from prism_assets.domain.tables.yaml_mapping import is_unstorable
from prism_assets.domain.text import counted

_TIME_NAMES = " time timestamp event_time ts datetime created_at date "  # of columns, likely ones first
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class DraftedTable:
    """The text of a table file. `losses` are values of the sample it would not keep whole."""

    text: str
    losses: tuple[str, ...]


def draft_table(name: TableName, sample: Survey, url: str, origin: str, now: datetime) -> DraftedTable:
    """Returns a table file for logs like the sample, arriving below `url`. Raises WrongUse if no table is possible.

    `origin` names the source of the sample. Rows as old as the sample's oldest are accepted, so that the sample can be
    loaded.
    """
    _check(sample, origin)
    keys = [key for key in sample.keys if not is_unstorable(key)]
    names = column_names(keys)
    time = _time_key(sample, names, now)
    columns = [column_for(sample.keys[key], names[key], sample.lines, is_time=key == time) for key in keys]
    columns = within_parts([*columns, *_around(sample, names.values())], sample)
    columns, evidence = _with_time(columns, sample, time, names, now)
    columns.sort(key=lambda column: not column.required)
    losses = tuple(loss for column in columns for loss in column.losses)
    form = "" if sample.format is None else f", format: {format_in_file(sample.format)}"
    lines = [
        *_comments(sample, origin, losses),
        f"schema: {quoted(name.schema)}",
        f"table: {quoted(name.table)}",
        "streams:",
        f"  - {{name: {quoted(name.table)}, url: {quoted(url)}{form}}}",
        f"partition: {{column: {quoted(columns[0].name)}}}",
        "columns:",
        *map(str, columns),
        *_accept(evidence, now),
    ]
    return DraftedTable("\n".join(lines) + "\n", losses)


def _comments(sample: Survey, origin: str, losses: Sequence[str]) -> Iterator[str]:
    """Yields the comments at the top of the file."""
    rejected = "".join(
        f"; {counted(count, 'more line')} no object: {reason}" for reason, count in sample.rejected.items()
    )
    rejected += "".join(f"; {words}" for words in unsound_words(sample.unsound))
    what, shape = "JSON object", "one a line"
    if isinstance(sample.format, DocumentFormat):
        shape = "records of documents"
    elif isinstance(sample.format, ParquetFormat):
        what, shape = "row", "of Parquet"
    elif sample.format is not None:
        what, shape = "line", "divided into fields"
    yield f"# Drafted from {counted(sample.lines, what)}, {shape}, of {_one_line(origin)}{rejected}."
    yield "# Comments of columns give the evidence of the sample."
    if losses:
        yield "# Not all values of the sample fit their columns:"
        yield from (f"#   {loss}" for loss in losses)
    if sample.has_large_documents:
        yield "# Keys around the records of documents above 1 MiB were not looked at."
    if sample.has_more_keys:
        yield "# Only the first keys have a column: there are more."
    if any(map(is_unstorable, sample.keys)):
        yield "# Keys with a NUL have no column: no table file can name them."


def _with_time(
    columns: list[DraftedColumn], sample: Survey, time: str | None, names: Mapping[str, str], now: datetime
) -> tuple[list[DraftedColumn], KeyEvidence]:
    """Returns the columns with the time of the event, and its evidence. `time` is the key of lines that has the time.

    Times that columns do not read are computed from the column of their key.
    """
    taken = [column.name for column in columns]
    if time is None:
        added, evidence = _time_inside(sample, taken, now)
        return [*columns, added], evidence
    name, evidence = names[time], sample.keys[time]
    if unix_unit(evidence, name) == NANOSECONDS:
        columns = [_nanoseconds(column, sample) if column.name == name else column for column in columns]
        value = f"make_timestamp_ns({quote_identifier(name)})"
        comment = f"{evidence.unix[NANOSECONDS]:,} of {evidence.values:,} are unix times in {NANOSECONDS}"
    elif is_of_access_log(evidence):
        columns = [replace(column, required=False) if column.name == name else column for column in columns]
        value = f"try_strptime({quote_identifier(name)}, {quote_text(ACCESS_LOG_TIME)})"
        comment = f"{evidence.access_log:,} of {evidence.values:,} are times of access logs"
    else:
        return columns, evidence
    return [*columns, _computed_time(value, comment, taken)], evidence


def has_time(sample: Survey) -> bool:
    """Whether some key of a sample holds times, as a table needs."""
    names = column_names(sample.keys)
    return any(is_time_key(evidence, names[key]) for key, evidence in sample.keys.items())


def unsound_words(objects: Mapping[str, int]) -> list[str]:
    """Returns phrases about truncated or damaged objects of a sample, counted by reason."""
    return [f"of {counted(count, 'object')} no line would be a row: {reason}" for reason, count in objects.items()]


def _check(sample: Survey, origin: str) -> None:
    if sample.lines:
        if sample.keys:
            return
        raise WrongUse(
            f"{origin}: none of its {counted(sample.lines, 'line')} has a key; a table needs a key with a time"
        )
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sample.rejected.items())
    if not reasons and sample.unsound:
        raise WrongUse(f"{origin} holds no line: {', '.join(sample.unsound)}; take a sample that is not damaged")
    if not reasons:
        raise WrongUse(f"{origin} holds no line; take a sample of JSON objects, one a line, plain or in gzip or zstd")
    advice = "one JSON object a line is wanted, or text that a delimiter or a regular expression divides"
    if sample.rejected.get(NOT_OBJECT):
        advice += "; `jq -c '.[]'` makes lines of an array"
    raise WrongUse(f"{origin}: none of its lines is a JSON object ({reasons}): {advice}")


def _time_key(sample: Survey, names: dict[str, str], now: datetime) -> str | None:
    """Returns the key with the time of the event: preferably accepted times on most lines, then a likely name.

    None if no key of lines holds times.
    """

    def rank(evidence: KeyEvidence) -> tuple[bool, bool, int, int]:
        place = _TIME_NAMES.find(f" {names[evidence.key]} ")
        position = place if place >= 0 else len(_TIME_NAMES)
        is_time = not is_a_version(evidence, names[evidence.key], now)
        return is_time, is_accepted(evidence, now), times_in(evidence), -position

    candidates = [sample.keys[key] for key in names if is_time_key(sample.keys[key], names[key])]
    best = max(candidates, key=rank, default=None)
    return best.key if best else None


def _time_inside(sample: Survey, taken: Collection[str], now: datetime) -> tuple[DraftedColumn, KeyEvidence]:
    """Returns a column for the time of the event inside nested objects, with its evidence.

    Raises WrongUse if there is no time.
    """
    found = [
        (is_accepted(evidence, now), evidence.values, -len(keys), place, keys, evidence)
        for place, (keys, evidence) in enumerate(_times_inside(sample.keys, ()))
    ]
    nearly = _nearly_times(sample)
    if not found or nearly:
        raise WrongUse(
            "no key of the sample holds times: a table needs one to know on which day a row falls; there are "
            f"{', '.join(taken)}{nearly}. Times are ISO 8601, or seconds, milli-, micro- or nanoseconds since 1970 "
            "under a key that is named like a time; others are computed, in a file that you write yourself, by a value "
            "such as strptime(written, '%d/%b/%Y:%H:%M:%S') or make_timestamp(microseconds)"
            f"{_unpacked(sample)}"
        )
    *_, keys, evidence = max(found, key=lambda item: item[:4])
    column = column_for(evidence, free_name("time", taken), sample.lines, is_time=True)
    return replace(column, source="$" + "".join(map(step_text, keys))), evidence


def _times_inside(
    keys: Mapping[str, KeyEvidence], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], KeyEvidence]]:
    """Yields the keys down to values that are times, in objects outside of arrays."""
    for key, evidence in keys.items():
        if is_unstorable(key):
            continue
        name = column_names([key])[key]
        if above and is_time_key(evidence, name) and unix_unit(evidence, name) != NANOSECONDS:
            yield (*above, key), evidence
        if evidence.inside:
            yield from _times_inside(evidence.inside.keys, (*above, key))


def _nearly_times(sample: Survey) -> str:
    """Names the key whose values are mostly times, but not in almost all lines."""
    best = max(sample.keys.values(), key=written_times)
    if written_times(best) * 2 < max(best.values, 1):
        return ""
    wanted = f"{ALMOST_ALL * 100:.0f} % are wanted: leave damaged lines out of the sample"
    return f"; in {best.key} {written_times(best):,} of {best.values:,} values are times, and {wanted}"


def _unpacked(sample: Survey) -> str:
    """Returns advice on unpacking a single key with an array, the format of CloudTrail's logs."""
    match list(sample.keys.values()):
        case [only] if only.kinds[ValueKind.NESTED] and _PLAIN_KEY.fullmatch(only.key):
            return f"; if {only.key} is an array of what happened, `jq -c '.{only.key}[]'` makes a line of each"
    return ""


def _around(sample: Survey, columns: Collection[str]) -> Iterator[DraftedColumn]:
    """Yields columns for keys around the records. `columns` are names that the keys of records take."""
    taken = {DAY_COLUMN, *columns}
    for source, evidence in sample.around.items():
        wanted = column_names([evidence.key])[evidence.key]
        name = free_name(f"outer_{wanted}" if wanted in columns else wanted, taken)
        taken.add(name)
        yield replace(column_for(evidence, name), source=source)


def _nanoseconds(column: DraftedColumn, sample: Survey) -> DraftedColumn:
    """Returns the time's key as a number, the input of the computed time."""
    comment = f"{sample.keys[column.key].values:,} of {sample.lines:,} lines; {NANOSECONDS} since 1970"
    return replace(column, type=BigIntType(), length=None, time_unit=None, required=False, comment=comment)


def _computed_time(value: str, comment: str, taken: Collection[str]) -> DraftedColumn:
    """Returns the time computed from another column."""
    name = free_name("time", taken)
    return DraftedColumn(name=name, key=name, type=TimestampType(), required=True, value=value, comment=comment)


def _accept(time: KeyEvidence, now: datetime) -> Sequence[str]:
    """Returns the `accept` lines, or none if the defaults accept the sample."""
    past = future = 0
    if time.earliest is not None and time.latest is not None:
        past = math.ceil((now - instant_of(time.earliest)) / timedelta(days=1))
        future = math.ceil((instant_of(time.latest) - now) / timedelta(days=1))
    if past <= PAST_DAYS and future <= FUTURE_DAYS:
        return ()
    days = min(max(past + PAST_DAYS, PAST_DAYS), MOST_PAST_DAYS)
    oldest = f"{instant_of(time.earliest or 0):%Y-%m-%d}"
    ahead = f", future_days: {min(future + FUTURE_DAYS, MOST_FUTURE_DAYS)}" if future > FUTURE_DAYS else ""
    return [f"accept: {{past_days: {days}{ahead}}}  # the sample begins on {oldest}; without it {PAST_DAYS} days"]


def _one_line(text: str) -> str:
    return " ".join(text.split())
