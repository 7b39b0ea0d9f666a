"""Drafts a table file from a sample of logs: types that lose nothing, with the evidence beside each column.

Types are never narrow, because a sample does not show future values. If at most one in a hundred values of a key has
another kind, the key gets the type of the majority. The other values would be null and counted; draft and command say
so. If a type would change values silently, such as a fraction in bigint or a 0 among times, the column is a string,
because strings take every value. Only the time column, which decides the day of a row, tolerates numbers that are no
times, and nested values: such lines are quarantined.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import yaml

from prism_assets.domain.columns.column import SECONDS_LIMIT, TIME_UNITS, Column
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DoubleType,
    JsonType,
    StringType,
    TimestampType,
)
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import TableName
from prism_assets.domain.streams.reasons import NOT_OBJECT
from prism_assets.domain.streams.sources import source_of_key
from prism_assets.domain.streams.survey import NANOSECONDS, KeyEvidence, Survey, ValueKind
from prism_assets.domain.tables.definition import FUTURE_DAYS, MOST_FUTURE_DAYS, MOST_PAST_DAYS, PAST_DAYS
from prism_assets.domain.tables.yaml_mapping import is_unstorable
from prism_assets.domain.text import counted

_ALMOST_ALL = 0.99
_SHORTEST = 256  # later values are longer than a sample's: addresses, client names, messages
_TIME_NAMES = " time timestamp event_time ts datetime created_at date "  # of columns, likely ones first
_LIKE_A_TIME = re.compile(
    r"(^|_)(time|timestamp|ts|at|date|datetime|msec|epoch|when)($|_)|(^|_)(created|updated|modified|occurred)$"
)
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 50  # of 64, because numbers are appended
_RESERVED = "dt"  # the partition
_NUMBERS = {ValueKind.WHOLE, ValueKind.FRACTION}


@dataclass(frozen=True, kw_only=True)
class DraftedColumn:
    """A column of a draft. `str` returns its line for a table file."""

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
    loss: str | None = None
    """Which values of the sample are cut or null."""

    def column(self) -> Column:
        """Returns the column defined by this line."""
        return Column(
            name=self.name,
            type=self.type,
            source=self.key,
            length=(self.length or DEFAULT_LENGTH) if self.type.takes_length else None,
            time_unit=None if self.time_unit == "seconds" else self.time_unit,
            required=self.required,
            value=self.value,
        )

    def __str__(self) -> str:
        parts = [f"name: {_quoted(self.name)}", f"type: {self.type.name}"]
        if self.key != self.name:
            parts.append(f"source: {_quoted(source_of_key(self.key))}")
        if self.type.takes_length:
            parts.append(f"length: {self.length or DEFAULT_LENGTH}")
        if self.time_unit and self.time_unit != "seconds":
            parts.append(f"time_unit: {self.time_unit}")
        if self.required:
            parts.append("required: true")
        if self.value:
            parts.append(f"value: {_quoted(self.value)}")
        return f"  - {{{', '.join(parts)}}}  # {self.comment}"


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
    names = _column_names(keys)
    time = _time_key(sample, names, now)
    columns = [_column(sample.keys[key], names[key], sample.lines, is_time=key == time) for key in keys]
    partition = names[time]
    if _unix_unit(sample.keys[time], partition) == NANOSECONDS:
        columns = [_nanoseconds(column, sample) if column.key == time else column for column in columns]
        columns.append(_computed_time(partition, names.values(), sample.keys[time]))
        partition = columns[-1].name
    columns.sort(key=lambda column: not column.required)
    losses = tuple(f"{column.name}: {column.loss}" for column in columns if column.loss)
    rejected = "".join(
        f"; {counted(count, 'more line')} no object: {reason}" for reason, count in sample.rejected.items()
    )
    rejected += "".join(f"; {words}" for words in unsound_words(sample.unsound))
    shape = "one a line" if sample.records is None else "records of documents"
    form = "" if sample.records is None else f", format: {{json: {{records: {json.dumps(sample.records)}}}}}"
    lines = [
        f"# Drafted from {counted(sample.lines, 'JSON object')}, {shape}, of {_one_line(origin)}{rejected}.",
        "# Comments of columns give the evidence of the sample.",
        *(["# Not all values of the sample fit their columns:", *(f"#   {loss}" for loss in losses)] if losses else []),
        *(["# Only the first keys have a column: there are more."] * sample.has_more_keys),
        *(["# Keys with a NUL have no column: no table file can name them."] * (len(keys) < len(sample.keys))),
        f"schema: {_quoted(name.schema)}",
        f"table: {_quoted(name.table)}",
        "streams:",
        f"  - {{name: {_quoted(name.table)}, url: {_quoted(url)}{form}}}",
        f"partition: {{column: {_quoted(partition)}}}",
        "columns:",
        *map(str, columns),
        *_accept(sample.keys[time], now),
    ]
    return DraftedTable("\n".join(lines) + "\n", losses)


def has_time(sample: Survey) -> bool:
    """Whether some key of a sample holds times, as a table needs."""
    names = _column_names(sample.keys)
    return any(_is_time(evidence, names[key]) for key, evidence in sample.keys.items())


def unsound_words(objects: Mapping[str, int]) -> list[str]:
    """Returns phrases about truncated or damaged objects of a sample, counted by reason."""
    return [f"of {counted(count, 'object')} no line would be a row: {reason}" for reason, count in objects.items()]


def draft_columns(
    keys: Collection[str], sample: Survey, known: Collection[str], *, wide: bool = False
) -> list[DraftedColumn]:
    """Returns columns for keys of an existing table whose column names are `known`. Keys without a line become strings.

    `wide` columns leave room for values beyond a small sample.
    """
    names = _column_names(keys, known)
    return [
        _column(sample.keys[key], names[key], sample.lines, wide=wide)
        if key in sample.keys
        else DraftedColumn(name=names[key], key=key, type=StringType(), comment="in no current line")
        for key in keys
    ]


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
    advice = "one JSON object a line is wanted"
    if sample.rejected.get(NOT_OBJECT):
        advice += "; `jq -c '.[]'` makes lines of an array"
    raise WrongUse(f"{origin}: none of its lines is a JSON object ({reasons}): {advice}")


def _free_name(wanted: str, taken: Collection[str]) -> str:
    chosen, number = wanted, 2
    while chosen in taken:
        chosen, number = f"{wanted}_{number}", number + 1
    return chosen


def _column_names(keys: Collection[str], known: Collection[str] = ()) -> dict[str, str]:
    """Returns a unique valid name for each key, in snake case, with a number if it is taken."""
    names: dict[str, str] = {}
    taken = {_RESERVED, *known}
    for key in keys:
        words = _NO_WORD.sub("_", _NEW_WORD.sub("_", key).lower()).strip("_")
        base = words if words[:1].isalpha() else f"c_{words}"
        chosen = _free_name(base[:_LONGEST_NAME].rstrip("_"), taken)
        names[key] = chosen
        taken.add(chosen)
    return names


def _time_key(sample: Survey, names: dict[str, str], now: datetime) -> str:
    """Returns the key with the time of the event: preferably accepted times on most lines, then a likely name."""

    def rank(evidence: KeyEvidence) -> tuple[bool, bool, int, int]:
        place = _TIME_NAMES.find(f" {names[evidence.key]} ")
        position = place if place >= 0 else len(_TIME_NAMES)
        is_time = not _is_a_version(evidence, names[evidence.key], now)
        return is_time, _is_accepted(evidence, now), _times(evidence), -position

    candidates = [sample.keys[key] for key in names if _is_time(sample.keys[key], names[key])]
    best = max(candidates, key=rank, default=None)
    if best is None:
        raise WrongUse(
            "no key of the sample holds times: a table needs one to know on which day a row falls; there are "
            f"{', '.join(names)}. Times are ISO 8601, or seconds, milli-, micro- or nanoseconds since 1970 under "
            "a key that is named like a time; others are computed, in a file that you write yourself, by a value such "
            "as strptime(written, '%d/%b/%Y:%H:%M:%S') or make_timestamp(microseconds)"
            f"{_unpacked(sample)}"
        )
    return best.key


def _unpacked(sample: Survey) -> str:
    """Returns advice on unpacking a single key with an array, the format of CloudTrail's logs."""
    match list(sample.keys.values()):
        case [only] if only.kinds[ValueKind.NESTED] and _BARE.fullmatch(only.key):
            return f"; if {only.key} is an array of what happened, `jq -c '.{only.key}[]'` makes a line of each"
    return ""


def _times(evidence: KeyEvidence) -> int:
    return _written_times(evidence) + evidence.unix.total()


def _is_time(evidence: KeyEvidence, name: str) -> bool:
    """Whether almost all values are times. Numbers count only under a fitting name, because ids look like them."""
    written = _written_times(evidence)
    return 0 < written >= _ALMOST_ALL * evidence.values or _unix_unit(evidence, name) is not None


def _is_a_version(evidence: KeyEvidence, name: str, now: datetime) -> bool:
    """Whether every line has the same old date, without a name of a time: an API version, for example."""
    is_one_day = evidence.kinds[ValueKind.DAY] == evidence.values > 1 and evidence.earliest == evidence.latest
    return is_one_day and not _is_accepted(evidence, now) and not _LIKE_A_TIME.search(name)


def _unix_unit(evidence: KeyEvidence, name: str) -> str | None:
    """Returns the unit of unix times if almost all values are times in this unit or written times, else None."""
    unit = _best_unit(evidence)
    written = 0 if unit == NANOSECONDS else _written_times(evidence)
    is_time = _LIKE_A_TIME.search(name) and _read_in(evidence, unit) + written >= _ALMOST_ALL * evidence.values
    return unit if is_time else None


def _best_unit(evidence: KeyEvidence) -> str | None:
    """Returns the unit in which most numbers are their likely times, or None without times."""
    return max(evidence.unix, key=lambda unit: (_read_in(evidence, unit), evidence.unix[unit]), default=None)


def _read_in(evidence: KeyEvidence, unit: str | None) -> int:
    """Returns how many numbers a column with this unit, or without one, reads as their likely times."""
    unit = unit or "seconds"
    takes_milliseconds = unit == "seconds" and evidence.earliest is not None and evidence.earliest > SECONDS_LIMIT
    return evidence.unix[unit] + (evidence.unix["milliseconds"] if takes_milliseconds else 0)


def _written_times(evidence: KeyEvidence) -> int:
    return evidence.kinds[ValueKind.INSTANT] + evidence.kinds[ValueKind.DAY]


def _is_accepted(evidence: KeyEvidence, now: datetime) -> bool:
    if evidence.earliest is None or evidence.latest is None:
        return False
    low, high = now - timedelta(days=PAST_DAYS), now + timedelta(days=FUTURE_DAYS)
    return low <= _instant(evidence.earliest) and _instant(evidence.latest) <= high


def _instant(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)


def _column(
    evidence: KeyEvidence, name: str, lines: int, *, is_time: bool = False, wide: bool = False
) -> DraftedColumn:
    kind, unit = _type(evidence, name, is_time=is_time)
    if wide:
        kind, unit = _wide_type(evidence, kind), None
    loss = None if is_time else _loss(evidence, kind)  # lines without their time are quarantined
    return DraftedColumn(
        name=name,
        key=evidence.key,
        type=kind,
        length=_length(evidence.longest) if isinstance(kind, StringType) and evidence.values and not wide else None,
        time_unit=unit,
        required=is_time,
        comment=_comment(evidence, name, kind, unit, lines),
        loss=loss,
    )


def _loss(evidence: KeyEvidence, kind: ColumnType) -> str | None:
    """Returns which values of the sample the column shortens or loses, or None."""
    if kind.takes_length:
        outcome = "null" if isinstance(kind, JsonType) else "cut"
        values = counted(evidence.beyond, "value is", "values are")
        return f"{values} {outcome}, longer than {DEFAULT_LENGTH:,} bytes" if evidence.beyond else None
    count = _others(evidence, kind).total()
    return f"{counted(count, 'value is', 'values are')} null, of another kind" if count else None


def _nanoseconds(column: DraftedColumn, sample: Survey) -> DraftedColumn:
    """Returns the time's key as a number, the input of the computed time."""
    comment = f"{sample.keys[column.key].values:,} of {sample.lines:,} lines; {NANOSECONDS} since 1970"
    return replace(column, type=BigIntType(), length=None, time_unit=None, required=False, comment=comment)


def _computed_time(source: str, taken: Collection[str], evidence: KeyEvidence) -> DraftedColumn:
    """Returns the time computed from a column of nanoseconds."""
    name = _free_name("time", taken)
    return DraftedColumn(
        name=name,
        key=name,
        type=TimestampType(),
        required=True,
        value=f'make_timestamp_ns("{source}")',
        comment=f"{evidence.unix[NANOSECONDS]:,} of {evidence.values:,} are unix times in {NANOSECONDS}",
    )


def _type(evidence: KeyEvidence, name: str, *, is_time: bool) -> tuple[ColumnType, str | None]:
    """Returns the type, and the unit of unix times.

    Only the partition's time column (`is_time`) may read some numbers differently or drop nested values, because its
    lines without a time are quarantined.
    """
    kinds = evidence.kinds

    def almost_all(*wanted: ValueKind) -> bool:
        return sum(kinds[kind] for kind in wanted) >= _ALMOST_ALL * evidence.values

    if not evidence.values or (kinds[ValueKind.NESTED] and not is_time):
        return JsonType(), None
    if almost_all(ValueKind.DAY) and not kinds[ValueKind.INSTANT] and not evidence.numbers:
        return DateType(), None
    if _is_timestamp(evidence, name):
        unit = _time_unit(evidence)
        if is_time or _read_in(evidence, unit) == evidence.numbers:
            return TimestampType(), unit
    if almost_all(ValueKind.BOOLEAN):
        return BooleanType(), None
    if almost_all(*_NUMBERS) and not kinds[ValueKind.HUGE] and not evidence.numeric:
        if not kinds[ValueKind.FRACTION]:
            return BigIntType(), None
        if not evidence.rounded:
            return DoubleType(), None
    return StringType(), None


def _wide_type(evidence: KeyEvidence, kind: ColumnType) -> ColumnType:
    """Returns a type with room for fractions after whole numbers, and hours after dates. Numbers stay numbers.

    Whole numbers that a double would round are ids and get no fractions. Quoted numbers stay as written.
    """
    if isinstance(kind, TimestampType) and evidence.numbers:
        return StringType() if _written_times(evidence) or evidence.numeric else DoubleType()
    if isinstance(kind, BigIntType) and not evidence.rounded:
        return DoubleType()
    return TimestampType() if isinstance(kind, DateType) else kind


def _is_timestamp(evidence: KeyEvidence, name: str) -> bool:
    """Whether a timestamp column reads almost all values."""
    return _is_time(evidence, name) and _unix_unit(evidence, name) != NANOSECONDS


def _time_unit(evidence: KeyEvidence) -> str | None:
    """Returns the unit for a timestamp column's numbers, or None if it needs none."""
    unit = _best_unit(evidence)
    return unit if unit in TIME_UNITS else None


def _length(longest: int) -> int:
    """Returns a generous length, because longer values are cut: the next power of two after twice the longest."""
    return min(max(1 << math.ceil(math.log2(max(2 * longest, 1))), _SHORTEST), DEFAULT_LENGTH)


_OF_TYPE: Mapping[type[ColumnType], Collection[ValueKind]] = {
    JsonType: tuple(ValueKind),
    BigIntType: (ValueKind.WHOLE,),
    DoubleType: (ValueKind.WHOLE, ValueKind.FRACTION),
    BooleanType: (ValueKind.BOOLEAN,),
    DateType: (ValueKind.DAY,),
    TimestampType: (ValueKind.INSTANT, ValueKind.DAY),
    StringType: (ValueKind.TEXT,),
}


def _comment(evidence: KeyEvidence, name: str, kind: ColumnType, unit: str | None, lines: int) -> str:
    """Returns on how many lines the key has a value, and kinds of values the type does not cover."""
    text = f"{evidence.values:,} of {lines:,} lines"
    if kind.takes_length and evidence.values:
        text += f", at most {evidence.longest:,} bytes"
        text += f"; {evidence.beyond:,} have more than a column takes" if evidence.beyond else ""
    if not isinstance(kind, JsonType) and _is_timestamp(evidence, name):
        text += "".join(f"; {words}" for words in _numbers_among_times(evidence, kind, unit))
    if isinstance(kind, StringType) and evidence.numeric == evidence.values:
        return f"{text}; all are numbers in quotes, which double and decimal take, too, and bigint without fractions"
    if evidence.rounded and not isinstance(kind, BigIntType):
        text += f"; {counted(evidence.rounded, 'number')} more exact than double"
    return "; ".join([text, *(f"{count:,} are {item.value}" for item, count in _others(evidence, kind).items())])


def _others(evidence: KeyEvidence, kind: ColumnType) -> Counter[ValueKind]:
    """Counts values of kinds the type is not for."""
    counts = evidence.kinds.copy()
    if isinstance(kind, TimestampType):  # their numbers are mentioned separately
        counts -= Counter({ValueKind.TEXT: evidence.numeric, **dict.fromkeys(_NUMBERS, evidence.values)})
    expected = _OF_TYPE[type(kind)]
    return Counter({item: count for item, count in counts.items() if count and item not in expected})


def _numbers_among_times(evidence: KeyEvidence, kind: ColumnType, unit: str | None) -> Iterator[str]:
    """Yields the meanings of numbers beside times, if mixed. Also explains why a key is no timestamp column."""
    is_time = isinstance(kind, TimestampType)
    wrong = evidence.numbers - _read_in(evidence, unit)
    if not is_time or wrong or _written_times(evidence) or len(evidence.unix) > 1:
        yield from (f"{count:,} are unix times in {found}" for found, count in evidence.unix.most_common())
    none = evidence.numbers - evidence.unix.total()
    if none:
        yield f"{none:,} are numbers that do not look like times"
    if is_time and wrong:
        yield f"lines with {wrong:,} of the numbers are quarantined, as these are no times in {unit or 'seconds'}"


def _accept(time: KeyEvidence, now: datetime) -> Sequence[str]:
    """Returns the `accept` lines, or none if the defaults accept the sample."""
    past = future = 0
    if time.earliest is not None and time.latest is not None:
        past = math.ceil((now - _instant(time.earliest)) / timedelta(days=1))
        future = math.ceil((_instant(time.latest) - now) / timedelta(days=1))
    if past <= PAST_DAYS and future <= FUTURE_DAYS:
        return ()
    days = min(max(past + PAST_DAYS, PAST_DAYS), MOST_PAST_DAYS)
    oldest = f"{_instant(time.earliest or 0):%Y-%m-%d}"
    ahead = f", future_days: {min(future + FUTURE_DAYS, MOST_FUTURE_DAYS)}" if future > FUTURE_DAYS else ""
    return [f"accept: {{past_days: {days}{ahead}}}  # the sample begins on {oldest}; without it {PAST_DAYS} days"]


def _quoted(text: str) -> str:
    """Returns text for a YAML file, quoted and escaped only if necessary."""
    if _BARE.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    written: str = yaml.safe_dump(text, default_style='"', width=10_000_000, allow_unicode=text.isprintable())
    return written.strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())
