"""Test cases of a table: lines in a file beside the table file, with the expected result of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from prism_assets.domain.columns.column import SENSITIVE, Column
from prism_assets.domain.columns.names import names_in_file, unknown_column
from prism_assets.domain.columns.types import JsonType, ListType, MapType, StructType
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import did_you_mean
from prism_assets.domain.streams.sources import HEADER, MESSAGE_FACTS, OUTER, Outer, is_message_fact, parse_source
from prism_assets.domain.streams.stream import StreamColumn
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.drafting.trial import read_table
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.json.rows import EVERY_KEY, Fields, RejectedError, Value, read_line, read_object
from prism_assets.kernels.trial import ELSEWHERE, FILTERED, ObjectTrial, plain, try_object
from prism_assets.kernels.typed import type_one_by_one

SUFFIX = ".test.jsonl"
_TABLE_FILES = (".yaml", ".yml")
MESSAGE = "$message"
"""The key that `with_key` adds for facts about a message."""
_KEYS = ("line", "outer", "message", "row", "quarantined", "filtered", "elsewhere", "received", "about")
_FATES = ("row", "quarantined", "filtered", "elsewhere")
_UNKEPT = {FILTERED: "a filtered line", ELSEWHERE: "a line of another table"}
_EVERY_DAY = DateRange(date(1970, 1, 1), date(2099, 12, 31))
_LONGEST = 1 << 27
_LONGEST_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """The result of one file of cases. Each failure reads `path:line: column: what is wrong`."""

    path: str
    table: str
    cases: int
    failures: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the file. `row` holds the columns to compare, as written."""

    number: int
    line: bytes
    received: datetime | None
    row: Fields | None = None
    reason: str | None = None
    fate: str = FILTERED
    """Without a row and a reason: `FILTERED` or `ELSEWHERE`."""


_Read = TypeVar("_Read", Column, StreamColumn)


class _WrongCaseError(Exception):
    """The line is no valid case."""


def find_files(given: Sequence[Path], folder: Path) -> list[Path]:
    """Returns the table files with cases: the given ones, named by table file or by cases, or all in the folder.

    Raises WrongUse for a given file without cases.
    """
    if not given:
        return [path for path in sorted(folder.rglob("*")) if path.suffix in _TABLE_FILES and cases_of(path).is_file()]
    files = [_file_of(path) if path.name.endswith(SUFFIX) else path for path in given]
    for path in files:
        if not cases_of(path).is_file():
            raise WrongUse(f"{path}: there are no cases; write them to {cases_of(path)}")
    return files


def cases_of(path: Path) -> Path:
    """Returns the path of a table file's cases."""
    return path.with_name(f"{path.stem}{SUFFIX}")


def _file_of(cases: Path) -> Path:
    """Returns the table file beside the given cases."""
    name = cases.name.removesuffix(SUFFIX)
    files = [cases.with_name(f"{name}{ending}") for ending in _TABLE_FILES]
    return next((path for path in files if path.is_file()), files[0])


def run_cases(path: Path) -> CaseReport:
    """Converts the lines of all cases beside a table file, and compares the results."""
    table, beside = read_table(path), cases_of(path)
    failures: list[tuple[int, str]] = []
    cases: list[Case] = []
    for number, line in enumerate(beside.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            cases.append(_read(number, line, table))
        except _WrongCaseError as error:
            failures.append((number, str(error)))
    count = len(cases) + len(failures)
    cases.sort(key=_arrival)
    for received, group in groupby(cases, key=lambda case: case.received):
        together = list(group)
        trial = convert_cases(table, beside, together, received)
        failures += [(case.number, wrong) for case in together for wrong in _Judge(trial).wrong(case)]
    sentences = tuple(f"{beside}:{number}: {wrong}" for number, wrong in sorted(failures, key=lambda item: item[0]))
    return CaseReport(path=str(beside), table=str(table.name), cases=count, failures=sentences)


def _arrival(case: Case) -> tuple[bool, float, int]:
    return case.received is not None, case.received.timestamp() if case.received else 0.0, case.number


def _read(number: int, text: bytes, table: TableDefinition) -> Case:
    try:
        fields = read_line(text, EVERY_KEY)
    except RejectedError as rejected:
        raise _WrongCaseError(f"a case is one JSON object a line, and this is none: {rejected.reason}") from None
    for key in fields:
        if key not in _KEYS:
            raise _WrongCaseError(f"{key}: unknown key{did_you_mean(key, _KEYS)} (there are {', '.join(_KEYS)})")
    fates = [key for key in _FATES if key in fields]
    if "line" not in fields or len(fates) != 1:
        raise _WrongCaseError("a case has a `line`, and one of `row`, `quarantined`, `filtered` and `elsewhere`")
    line, received = _line(*fields["line"]), _received(fields)
    if "outer" in fields:
        around, as_written = fields["outer"]
        if type(around) is not dict:
            raise _WrongCaseError("outer: must be an object, the document around the record")
        line = with_key(line, OUTER, as_written.encode())
    if "message" in fields:
        line = with_key(line, MESSAGE, _facts(*fields["message"], table))
    value, raw = fields[fates[0]]
    match fates[0]:
        case "row":
            return Case(number=number, line=line, received=received, row=_row(value, raw, table))
        case "quarantined":
            if type(value) is not str or not value:
                raise _WrongCaseError('quarantined: must be a reason, such as "missing_time"')
            return Case(number=number, line=line, received=received, reason=value)
        case fate:
            if value is not True:
                raise _WrongCaseError(f"{fate}: must be true")
            return Case(number=number, line=line, received=received, fate=fate)


def _line(value: Any, raw: str) -> bytes:
    """Returns the line of a case as bytes.

    The case gives a JSON object as it is, and any other line as a JSON string.
    """
    if type(value) is not str:
        return raw.encode()
    if "\n" in value or not value.strip():
        raise _WrongCaseError("line: a text must be one line that is not blank")
    return value.encode()


def _facts(value: Any, as_written: str, table: TableDefinition) -> bytes:
    """Returns the facts about the message of a case."""
    if table.streams[0].topic is None:
        raise _WrongCaseError("message: only messages of a topic have facts, and the first stream reads none")
    if type(value) is not dict:
        raise _WrongCaseError('message: must be an object with facts, such as {"@key": "a", "@offset": 7}')
    for name in value:
        if not is_message_fact(name):
            near = did_you_mean(name, MESSAGE_FACTS)
            raise _WrongCaseError(f"message: {name} is no fact{near} (there are {', '.join(MESSAGE_FACTS)}, {HEADER}…)")
    return as_written.encode()


def with_key(line: bytes, key: str, value: bytes) -> bytes:
    """Returns a line with one more key, for values that are not in it: the document around a record, or facts.

    A line that is no object stays as it is.
    """
    try:
        read_line(line, {})
    except RejectedError:
        return line
    inside = line.strip()[1:-1].strip()
    return b'{%b%b"%b": %b}' % (inside, b", " if inside else b"", key.encode(), value)


def _received(fields: Fields) -> datetime | None:
    value = fields.get("received", (None, ""))[0]
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        raise _WrongCaseError("received: must look like 2026-03-01T12:00:00Z") from None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def _row(value: Any, raw: str, table: TableDefinition) -> Fields:
    if type(value) is not dict:
        raise _WrongCaseError("row: must be an object with the columns that are judged; {} for any row")
    try:
        row = read_object(raw, 1, EVERY_KEY)
    except RejectedError as rejected:
        raise _WrongCaseError(f"row: {rejected.column} is given twice") from None
    stored = [column.name for column in table.columns]
    unstored = {column.name for column in table.unstored}
    for name in row:
        if name in unstored:
            raise _WrongCaseError(f"row: {name} is not stored")
        if name not in stored:
            near = unknown_column(name, stored, names_in_file(table.columns))
            raise _WrongCaseError(f"row: there is no column {name}{near}")
    return row


def convert_cases(table: TableDefinition, path: Path, cases: Sequence[Case], received: datetime | None) -> ObjectTrial:
    """Converts the lines of cases as one object. Each line keeps the number of its case in the file.

    In streams of topics, protobuf and documents, too, cases are JSON lines: the content of messages, and records.
    """
    lines = [b""] * max(case.number for case in cases)
    for case in cases:
        lines[case.number - 1] = case.line
    body = b"\n".join(lines) + b"\n"
    stream = table.streams[0]
    task = ConvertTask(
        staging_object_id=0,
        bucket=stream.bucket,
        key=f"{stream.key_prefix}{path.name}",
        etag=None,
        content_length=len(body),
        received=received or datetime(1970, 1, 1, tzinfo=timezone.utc),
        sent=received,
        stream_name=stream.name,
        delayed_dates=frozenset(),
        table_id=0,
        definition_version=0,
    )
    accepted = None if received else _EVERY_DAY
    return try_object(
        task,
        _as_json_lines(table),
        lambda: iter([body]),
        FirstLines(_LONGEST),
        accepted=accepted,
        secret_of=secret_of_name,
    )


def _as_json_lines(table: TableDefinition) -> TableDefinition:
    messages = table.streams[0].topic is not None
    by_key = partial(_by_key, messages=messages)
    streams = tuple(
        dataclasses.replace(stream, format=None, topic=None, columns=tuple(map(by_key, stream.columns)))
        for stream in table.streams
    )
    columns, unstored = tuple(map(by_key, table.columns)), tuple(map(by_key, table.unstored))
    return dataclasses.replace(table, streams=streams, columns=columns, unstored=unstored)


def _by_key(column: _Read, *, messages: bool) -> _Read:
    """Lets a column read values around the record, and facts about the message, from the keys that `with_key` adds."""

    def source(text: str) -> str:
        if messages and is_message_fact(text):
            return f'$["{MESSAGE}"][{json.dumps(text, ensure_ascii=False)}]'
        return f'$["{OUTER}"]{text.removeprefix(OUTER)}' if isinstance(parse_source(text), Outer) else text

    if messages and not column.sources and is_message_fact(column.source):
        return dataclasses.replace(column, sources=(source(column.source),))
    return dataclasses.replace(column, source=source(column.source), sources=tuple(map(source, column.sources)))


def secret_of_name(name: str) -> str:
    """Returns the name as the secret, so results are equal everywhere and no secret is needed."""
    return name


@dataclass
class _Judge:
    """Compares cases with the results for their lines."""

    trial: ObjectTrial
    _rows: Mapping[int, int] = field(init=False)
    _reasons: Mapping[int, tuple[str, str | None]] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = {number: index for index, number in enumerate(self.trial.numbers.tolist())}
        self._reasons = {
            item.line: (item.reason, item.column) for item in self.trial.set_aside if item.line is not None
        }

    def wrong(self, case: Case) -> Iterator[str]:
        """Yields a sentence for each difference."""
        got, expected_fate = self._fate(case.number), _expected_fate(case)
        if got.partition(" (")[0] != expected_fate:
            yield f"expected {expected_fate}, got {got}"
        elif case.row is not None:
            for name, value in case.row.items():
                yield from self._differing(name, value, self._rows[case.number])

    def _fate(self, number: int) -> str:
        if number in self._rows:
            return "a row"
        if number not in self._reasons:
            return _UNKEPT[ELSEWHERE if number in self.trial.elsewhere_numbers else FILTERED]
        reason, column = self._reasons[number]
        return f"a line quarantined as {reason}" + (f" (column {column})" if column else "")

    def _differing(self, name: str, value: Value, row: int) -> Iterator[str]:
        layout = self.trial.layout
        position = [column.name for column in layout.columns].index(name)
        column = layout.columns[position]
        typed, misfits = type_one_by_one(layout, position, [value])
        hidden = name in layout.program.sensitive
        shown = SENSITIVE if hidden else _short(value[1])
        if misfits:
            yield f"{name}: the expected value {shown} is no value of {column.type}: {misfits[0].reason}"
            return
        expected, got = typed[0].as_py(), self.trial.rows.column(name)[row].as_py()
        if not _equal(expected, got, is_json=isinstance(column.type, JsonType)):
            yield f"{name}: expected {shown}, got {SENSITIVE if hidden else _short(text_of(got, column.type))}"


def _expected_fate(case: Case) -> str:
    if case.row is not None:
        return "a row"
    return f"a line quarantined as {case.reason}" if case.reason else _UNKEPT[case.fate]


def _equal(expected: Any, got: Any, *, is_json: bool) -> bool:
    """Compares values. In JSON and maps, key order does not matter, but the spelling of numbers in JSON does."""
    if is_json and expected is not None and got is not None:
        return bool(_parsed(expected) == _parsed(got))
    return bool(plain(expected) == plain(got))


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_number, parse_float=_number)


def _number(text: str) -> tuple[str, str]:
    return "number", text


def text_of(value: Any, kind: object) -> str:
    """Returns a stored value in the notation of cases. JSON stays as it is."""
    match kind:
        case _ if value is None:
            return "null"
        case JsonType():
            return str(value)
        case StructType(fields):
            members = [(part.source or part.name, text_of(value[part.stored_name], part.type)) for part in fields]
            return _object(members)
        case MapType(_, part):
            return _object([(key, text_of(item, part.type)) for key, item in value])
        case ListType(part):
            return f"[{', '.join(text_of(item, part.type) for item in value)}]"
    return json.dumps(plain(value), ensure_ascii=False)


def _object(members: Sequence[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)}: {text}' for key, text in members)}}}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
