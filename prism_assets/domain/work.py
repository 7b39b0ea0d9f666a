"""What stages hand to kernels and what comes back. Plain frozen data: it travels to Spark tasks as JSON.

A kernel does not raise for one bad object: the failure is a field of its result.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a task failed. Transient failures are worth another attempt, whoever is to blame.

    `at_source` says that the staging object could not be read, and `of_object` that the store refuses this object for
    what it is, as it does those of an archive; `killed` that a worker died over the task; `occupied` that other rows
    lie under a key it was to write.
    """

    message: str
    transient: bool
    at_source: bool = False
    of_object: bool = False
    killed: bool = False
    occupied: bool = False


@dataclass(frozen=True, kw_only=True)
class ConvertTask:
    """One staging object to convert.

    `received` is when the object was first seen, `sent` when its bucket got it, where that is known: the accepted event
    dates hang on them and on the key (`accepted_days`), so that every attempt decides alike. Rows of `delayed_dates` go
    to the delayed tier, all others to the live tier. `table_id` and `definition_version` name the definition to convert
    under. `generation` is part of the keys that are written: it counts how often the object was begun anew.
    """

    staging_object_id: int
    bucket: str
    key: str
    etag: str | None
    content_length: int
    received: datetime
    stream_name: str
    delayed_dates: frozenset[date]
    table_id: int
    definition_version: int
    generation: int = 0
    sent: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SmallObject:
    """One Parquet object written by Stream: the rows of one staging object for one event date. Times are UTC."""

    key: str
    date: date
    delayed: bool
    content_length: int
    row_count: int
    min_time: datetime
    max_time: datetime
    fingerprint: int
    upload_start_time: datetime


@dataclass(frozen=True, kw_only=True)
class QuarantineCount:
    """How many lines of one staging object were set aside for one reason; none where it is only told."""

    reason: str
    line_count: int


@dataclass(frozen=True, kw_only=True)
class ValueErrors:
    """How many values of a column did not fit (`unfit`, `out_of_range`, `not_finite`, `too_long`, `cut`)."""

    column: str
    reason: str
    count: int


@dataclass(frozen=True, kw_only=True)
class SourceVersion:
    """What the store says of the object that lies under a staging object's key now; the length is in bytes."""

    etag: str | None
    content_length: int
    last_modified: datetime | None


@dataclass(frozen=True, kw_only=True)
class ConvertResult:
    """What became of one staging object.

    `lines_in == rows_out + lines_quarantined` unless it failed; each is counted by itself.

    `changed` is the version that was met instead of the one that was registered; nothing of it was read.
    """

    staging_object_id: int
    lines_in: int = 0
    rows_out: int = 0
    objects: tuple[SmallObject, ...] = ()
    quarantined: tuple[QuarantineCount, ...] = ()
    quarantine_key: str | None = None
    value_errors: tuple[ValueErrors, ...] = ()
    fast_lines: int = 0
    changed: SourceVersion | None = None
    failure: Failure | None = None

    @property
    def lines_quarantined(self) -> int:
        """Lines set aside, counted by themselves."""
        return sum(count.line_count for count in self.quarantined)


@dataclass(frozen=True, kw_only=True)
class RecordedObject:
    """A small object as it was committed: what must lie under its key again, row by row."""

    date: date
    delayed: bool
    content_length: int
    row_count: int
    fingerprint: int


@dataclass(frozen=True, kw_only=True)
class RepairTask:
    """Small objects of one staging object that may be missing or damaged.

    `source` is the staging object as it was converted. With `look_only` nothing is written.
    """

    source: ConvertTask
    recorded: tuple[RecordedObject, ...]
    look_only: bool = False

    @property
    def staging_object_id(self) -> int:
        """The staging object that all of `recorded` come from."""
        return self.source.staging_object_id

    @property
    def table_id(self) -> int:
        """The table, for its definition."""
        return self.source.table_id

    @property
    def definition_version(self) -> int:
        """The definition that the objects were converted under."""
        return self.source.definition_version


@dataclass(frozen=True, kw_only=True)
class RepairedObject:
    """What was found under the key of one recorded object, and what lies there now; the length is in bytes.

    `fault` is None for an object that holds the recorded rows, else one sentence. `content_length` is None as long
    as the rows are not there.
    """

    date: date
    key: str
    fault: str | None
    content_length: int | None


@dataclass(frozen=True, kw_only=True)
class RepairResult:
    """What became of one task. With a failure, objects may have been found and not repaired."""

    staging_object_id: int
    objects: tuple[RepairedObject, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class MergeInput:
    """One sorted object to merge: a small object, or the merged object of the range that is extended."""

    key: str
    content_length: int
    row_count: int
    fingerprint: int


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """One range to write. Inputs stand in the order that breaks ties between rows of equal time."""

    job_id: int
    date: date
    lower_bound: int
    upper_bound: int
    inputs: tuple[MergeInput, ...]
    output_key: str
    table_id: int
    definition_version: int


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """The merged object that was written, or why not."""

    job_id: int
    lower_bound: int
    upper_bound: int
    output_key: str
    content_length: int = 0
    row_count: int = 0
    fingerprint: int = 0
    failure: Failure | None = None


def _encode(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} does not travel to a task")


def to_json(work: ConvertTask | ConvertResult | RepairTask | RepairResult | MergeTask | MergeResult) -> str:
    """One line of JSON; `*_from_json` reads it back."""
    return json.dumps(dataclasses.asdict(work), default=_encode, separators=(",", ":"))


def convert_task_from_json(text: str) -> ConvertTask:
    """Reads a ConvertTask."""
    return _convert_task(json.loads(text))


def _convert_task(document: dict[str, Any]) -> ConvertTask:
    document["received"] = datetime.fromisoformat(document["received"])
    document["sent"] = document["sent"] and datetime.fromisoformat(document["sent"])
    document["delayed_dates"] = frozenset(date.fromisoformat(day) for day in document["delayed_dates"])
    return ConvertTask(**document)


def convert_result_from_json(text: str) -> ConvertResult:
    """Reads a ConvertResult."""
    document = json.loads(text)
    for small in document["objects"]:
        small["date"] = date.fromisoformat(small["date"])
        for field in ("min_time", "max_time", "upload_start_time"):
            small[field] = datetime.fromisoformat(small[field])
    document["objects"] = tuple(SmallObject(**small) for small in document["objects"])
    document["quarantined"] = tuple(QuarantineCount(**count) for count in document["quarantined"])
    document["value_errors"] = tuple(ValueErrors(**count) for count in document["value_errors"])
    if changed := document["changed"]:
        changed["last_modified"] = datetime.fromisoformat(changed["last_modified"])
        document["changed"] = SourceVersion(**changed)
    document["failure"] = document["failure"] and Failure(**document["failure"])
    return ConvertResult(**document)


def repair_task_from_json(text: str) -> RepairTask:
    """Reads a RepairTask."""
    document = json.loads(text)
    document["source"] = _convert_task(document["source"])
    document["recorded"] = tuple(RecordedObject(**_with_date(item)) for item in document["recorded"])
    return RepairTask(**document)


def repair_result_from_json(text: str) -> RepairResult:
    """Reads a RepairResult."""
    document = json.loads(text)
    document["objects"] = tuple(RepairedObject(**_with_date(item)) for item in document["objects"])
    document["failure"] = document["failure"] and Failure(**document["failure"])
    return RepairResult(**document)


def _with_date(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "date": date.fromisoformat(document["date"])}


def merge_task_from_json(text: str) -> MergeTask:
    """Reads a MergeTask."""
    document = json.loads(text)
    document["date"] = date.fromisoformat(document["date"])
    document["inputs"] = tuple(MergeInput(**entry) for entry in document["inputs"])
    return MergeTask(**document)


def merge_result_from_json(text: str) -> MergeResult:
    """Reads a MergeResult."""
    document = json.loads(text)
    document["failure"] = document["failure"] and Failure(**document["failure"])
    return MergeResult(**document)
