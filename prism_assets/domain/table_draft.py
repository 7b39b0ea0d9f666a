"""Drafts a table file from a sample of logs: types that lose nothing, and beside each column what it was told by.

Types are never narrow: a sample tells what is there and not what may come. A key whose values are of one kind but for
one in a hundred gets the type of that kind. The others would be null, and counted: the draft and the command say so.
Anything that the type would change without a word, as a fraction in bigint or a 0 among times, and all else is text,
which takes every value. The time by which rows fall on days is one also where some of its numbers are none, or some
values are nested: their lines are set aside.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import yaml

from prism_assets.domain.columns import DEFAULT_LENGTH, SECONDS_LIMIT, TIME_UNITS, Column
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import TableName
from prism_assets.domain.reasons import NOT_OBJECT
from prism_assets.domain.sources import source_of_key
from prism_assets.domain.survey import NANOSECONDS, KeyEvidence, Survey, ValueKind
from prism_assets.domain.tables import FUTURE_DAYS, MOST_FUTURE_DAYS, MOST_PAST_DAYS, PAST_DAYS
from prism_assets.domain.types import (
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DoubleType,
    JsonType,
    StringType,
    TimestampType,
)
from prism_assets.domain.words import counted
from prism_assets.domain.yaml_mapping import is_unstorable

_ALMOST_ALL = 0.99
_SHORTEST = 256  # what comes later is longer than a sample: addresses, names of clients, messages
_TIME_NAMES = " time timestamp event_time ts datetime created_at date "  # of columns, likely ones first
_LIKE_A_TIME = re.compile(
    r"(^|_)(time|timestamp|ts|at|date|datetime|msec|epoch|when)($|_)|(^|_)(created|updated|modified|occurred)$"
)
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 50  # of 64, as numbers are added
_RESERVED = "dt"  # the partition
_NUMBERS = {ValueKind.WHOLE, ValueKind.FRACTION}


@dataclass(frozen=True, kw_only=True)
class DraftedColumn:
    """A column of a draft; `str` writes it as a table file has it.

    `time_unit` is that of unix times; `comment` is what the sample says of the key. With a `value` it is computed, and
    `key` is nothing but its name. `loss` says which values of the sample are cut or null.
    """

    name: str
    key: str
    type: ColumnType
    comment: str
    length: int | None = None
    time_unit: str | None = None
    required: bool = False
    value: str | None = None
    loss: str | None = None

    def column(self) -> Column:
        """The column that table files mean by what `str` writes."""
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
    """The text of a table file. `losses` say which values of the sample it would not keep whole."""

    text: str
    losses: tuple[str, ...]


def draft_table(name: TableName, sample: Survey, url: str, origin: str, now: datetime) -> DraftedTable:
    """The table file for logs like the sample, which arrive below `url`. WrongUse where no table can be made of it.

    `origin` says where the sample is from. Rows as old as the oldest of the sample are accepted, so that the sample
    itself can be loaded.
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
    lines = [
        f"# Drafted from {counted(sample.lines, 'JSON object')}, one a line, of {_one_line(origin)}{rejected}.",
        "# The comment of a column is what they say of it.",
        *(["# Not all values of the sample fit their columns:", *(f"#   {loss}" for loss in losses)] if losses else []),
        *(["# Only the keys that came first have a column: there are more."] * sample.has_more_keys),
        *(
            ["# Keys that have a NUL in them have no column: no table file can name them."]
            * (len(keys) < len(sample.keys))
        ),
        f"schema: {_quoted(name.schema)}",
        f"table: {_quoted(name.table)}",
        "streams:",
        f"  - {{name: {_quoted(name.table)}, url: {_quoted(url)}}}",
        f"partition: {{column: {_quoted(partition)}}}",
        "columns:",
        *map(str, columns),
        *_accept(sample.keys[time], now),
    ]
    return DraftedTable("\n".join(lines) + "\n", losses)


def unsound_words(objects: Mapping[str, int]) -> list[str]:
    """What is said of the objects of a sample that end early or are damaged, counted by reason."""
    return [f"of {counted(count, 'object')} no line would be a row: {reason}" for reason, count in objects.items()]


def draft_columns(
    keys: Collection[str], sample: Survey, known: Collection[str], *, wide: bool = False
) -> list[DraftedColumn]:
    """Columns for keys of a table that has others, whose names are `known`; any text, where no line has the key.

    Those that are `wide` have room for what may come behind a sample of a few lines, too.
    """
    names = _column_names(keys, known)
    return [
        _column(sample.keys[key], names[key], sample.lines, wide=wide)
        if key in sample.keys
        else DraftedColumn(name=names[key], key=key, type=StringType(), comment="in no line that is there now")
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
    """A name for each key, in snake case; one that is taken already gets a number. Table files take all of them."""
    names: dict[str, str] = {}
    taken = {_RESERVED, *known}
    for key in keys:
        words = _NO_WORD.sub("_", _NEW_WORD.sub("_", key).lower()).strip("_")
        wanted = words if words[:1].isalpha() else f"c_{words}"
        chosen = _free_name(wanted[:_LONGEST_NAME].rstrip("_"), taken)
        names[key] = chosen
        taken.add(chosen)
    return names


def _time_key(sample: Survey, names: dict[str, str], now: datetime) -> str:
    """The key that tells when a line happened: on most lines a time that is accepted, then a time by its name."""

    def rank(evidence: KeyEvidence) -> tuple[bool, bool, int, int]:
        place = _TIME_NAMES.find(f" {names[evidence.key]} ")
        known = place if place >= 0 else len(_TIME_NAMES)
        is_time = not _is_a_version(evidence, names[evidence.key], now)
        return is_time, _is_accepted(evidence, now), _times(evidence), -known

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
    """How lines are made of what a single key holds, as logs of CloudTrail are delivered."""
    match list(sample.keys.values()):
        case [only] if only.kinds[ValueKind.NESTED] and _BARE.fullmatch(only.key):
            return f"; if {only.key} is an array of what happened, `jq -c '.{only.key}[]'` makes a line of each"
    return ""


def _times(evidence: KeyEvidence) -> int:
    return _written_times(evidence) + evidence.unix.total()


def _is_time(evidence: KeyEvidence, name: str) -> bool:
    """Whether almost all values are times; numbers only where the name says so, as ids look like them."""
    written = _written_times(evidence)
    return 0 < written >= _ALMOST_ALL * evidence.values or _unix_unit(evidence, name) is not None


def _is_a_version(evidence: KeyEvidence, name: str, now: datetime) -> bool:
    """Whether it is one old date on all lines, and not by its name when something happened: that of an interface."""
    is_one_day = evidence.kinds[ValueKind.DAY] == evidence.values > 1 and evidence.earliest == evidence.latest
    return is_one_day and not _is_accepted(evidence, now) and not _LIKE_A_TIME.search(name)


def _unix_unit(evidence: KeyEvidence, name: str) -> str | None:
    """The unit of unix times, where there is almost nothing but such that it reads, and times that are written out."""
    unit = _best_unit(evidence)
    written = 0 if unit == NANOSECONDS else _written_times(evidence)
    is_time = _LIKE_A_TIME.search(name) and _read_in(evidence, unit) + written >= _ALMOST_ALL * evidence.values
    return unit if is_time else None


def _best_unit(evidence: KeyEvidence) -> str | None:
    """The unit in which most numbers are the times that they likely are; None where none is a time."""
    return max(evidence.unix, key=lambda unit: (_read_in(evidence, unit), evidence.unix[unit]), default=None)


def _read_in(evidence: KeyEvidence, unit: str | None) -> int:
    """How many numbers a column of the unit, or of none, reads as the times that they likely are."""
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
    loss = None if is_time else _loss(evidence, kind)  # lines without their time are set aside
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
    """Says which values of the sample the column does not keep whole; None if it keeps all."""
    if kind.takes_length:
        outcome = "null" if isinstance(kind, JsonType) else "cut"
        told = counted(evidence.beyond, "value is", "values are")
        return f"{told} {outcome}, longer than {DEFAULT_LENGTH:,} bytes" if evidence.beyond else None
    count = _others(evidence, kind).total()
    return f"{counted(count, 'value is', 'values are')} null, of another kind" if count else None


def _nanoseconds(column: DraftedColumn, sample: Survey) -> DraftedColumn:
    """The key of the time as a number, of which the time is computed."""
    told = f"{sample.keys[column.key].values:,} of {sample.lines:,} lines; {NANOSECONDS} since 1970"
    return replace(column, type=BigIntType(), length=None, time_unit=None, required=False, comment=told)


def _computed_time(source: str, taken: Collection[str], evidence: KeyEvidence) -> DraftedColumn:
    """The time that a column of nanoseconds means."""
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
    """The type, and the unit of unix times.

    The column that `is_time`, by which rows fall on days, is one also where some lines have something else, which are
    set aside. Of all columns only that one may read a number as another, and leaves out what is nested.
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
    """The type that keeps a fraction behind whole numbers, and an hour behind dates; numbers stay numbers, not times.

    Whole numbers that a double would round are ids, which get no fractions. Numbers in quotes stay as they are written.
    """
    if isinstance(kind, TimestampType) and evidence.numbers:
        return StringType() if _written_times(evidence) or evidence.numeric else DoubleType()
    if isinstance(kind, BigIntType) and not evidence.rounded:
        return DoubleType()
    return TimestampType() if isinstance(kind, DateType) else kind


def _is_timestamp(evidence: KeyEvidence, name: str) -> bool:
    """Whether a column of times reads almost all values."""
    return _is_time(evidence, name) and _unix_unit(evidence, name) != NANOSECONDS


def _time_unit(evidence: KeyEvidence) -> str | None:
    """The unit that a column of times takes for the numbers; None where it has no need of one."""
    unit = _best_unit(evidence)
    return unit if unit in TIME_UNITS else None


def _length(longest: int) -> int:
    """Twice the longest, up to the next power of two, and never short, as longer values are cut."""
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
    """On how many lines the key has a value, and what else than its type says some of them are."""
    told = f"{evidence.values:,} of {lines:,} lines"
    if kind.takes_length and evidence.values:
        told += f", at most {evidence.longest:,} bytes"
        told += f"; {evidence.beyond:,} have more than a column takes" if evidence.beyond else ""
    if not isinstance(kind, JsonType) and _is_timestamp(evidence, name):
        told += "".join(f"; {words}" for words in _numbers_among_times(evidence, kind, unit))
    if isinstance(kind, StringType) and evidence.numeric == evidence.values:
        return f"{told}; all are numbers in quotes, which double and decimal take, too, and bigint without fractions"
    if evidence.rounded and not isinstance(kind, BigIntType):
        told += f"; {counted(evidence.rounded, 'number')} more exact than double"
    return "; ".join([told, *(f"{count:,} are {item.value}" for item, count in _others(evidence, kind).items())])


def _others(evidence: KeyEvidence, kind: ColumnType) -> Counter[ValueKind]:
    """The values of other kinds than the type is for."""
    counts = evidence.kinds.copy()
    if isinstance(kind, TimestampType):  # of which the numbers are told
        counts -= Counter({ValueKind.TEXT: evidence.numeric, **dict.fromkeys(_NUMBERS, evidence.values)})
    expected = _OF_TYPE[type(kind)]
    return Counter({item: count for item, count in counts.items() if count and item not in expected})


def _numbers_among_times(evidence: KeyEvidence, kind: ColumnType, unit: str | None) -> Iterator[str]:
    """What numbers beside times are, where that is not one thing: also why a key has no column of times."""
    is_time = isinstance(kind, TimestampType)
    wrong = evidence.numbers - _read_in(evidence, unit)
    if not is_time or wrong or _written_times(evidence) or len(evidence.unix) > 1:
        yield from (f"{count:,} are unix times in {found}" for found, count in evidence.unix.most_common())
    none = evidence.numbers - evidence.unix.total()
    if none:
        yield f"{none:,} are numbers that do not look like times"
    if is_time and wrong:
        yield f"lines with {wrong:,} of the numbers are set aside, as these are no times in {unit or 'seconds'}"


def _accept(time: KeyEvidence, now: datetime) -> Sequence[str]:
    """Nothing where the sample is accepted as it is."""
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
    """As a YAML file has it: bare where that means the same text, else in quotes, with escapes where it must."""
    if _BARE.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    written: str = yaml.safe_dump(text, default_style='"', width=10_000_000, allow_unicode=text.isprintable())
    return written.strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())
