"""Every key of a table file: its place, its form, its default, an example, and a phrase about it.

The parser knows these keys and no others, with their bounds and words. The JSON Schema for editors and the table of
docs/table-file.md are made from this list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prism_assets.domain.columns.column import TIME_UNITS
from prism_assets.domain.columns.types import DEFAULT_LENGTH, FILE_FORMATS, MICROSECONDS
from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.names import NAME
from prism_assets.domain.records.joins import AFTER, LONGEST_WINDOW, MERGES, MOST_BUCKETS, SETTLE, WINNER, PublishPolicy
from prism_assets.domain.service_limits import GLUE_COMMENT, GLUE_DESCRIPTION, GLUE_OWNER, MOST_COLUMNS
from prism_assets.domain.streams.topic import (
    CLUSTER,
    DEFAULT_CLUSTER,
    EARLIEST,
    FLUSH_BYTES,
    FLUSH_SECONDS,
    SPOOL_DAYS,
    TOMBSTONES,
    TOPIC,
)
from prism_assets.domain.tables.definition import (
    ACCEPT_FROM,
    FUTURE_DAYS,
    GRACE_DAYS,
    MOST_FUTURE_DAYS,
    MOST_PAST_DAYS,
    PAST_DAYS,
)
from prism_assets.domain.tables.options import MISFITS, NEW_FIELDS, ON_FOREIGN, Contract, IcebergOptions, MergePolicy

LONGEST_RETENTION = 36_500
LONGEST_GRACE = 3_650
LONGEST_EXPRESSION = 4_000
MOST_TARGET_BYTES = 1 << 34
MOST_MERGE_OBJECTS = 100_000
LONGEST_MERGE_INTERVAL = 7 * 86_400
LONGEST_COMMIT_SECONDS = 86_400
LONGEST_SNAPSHOT_HOURS = 8_760
MOST_DAILY_TAGS = 3_650
LONGEST_CHECK_HOURS = 8_760
LONGEST_SPOOL_DAYS = 3_650
LEAST_FLUSH_SECONDS, MOST_FLUSH_SECONDS = 0.05, 300
LEAST_FLUSH_BYTES, MOST_FLUSH_BYTES = 1 << 10, 1 << 30


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text, with a pattern where it has one, and its longest length in bytes."""

    pattern: str | None = None
    longest: int | None = None


@dataclass(frozen=True)
class Expression:
    """An SQL expression; YAML's own true, false and numbers are expressions, too."""


@dataclass(frozen=True)
class Flag:
    """True or false."""


@dataclass(frozen=True)
class Whole:
    """A whole number between two bounds."""

    low: int
    high: int


@dataclass(frozen=True)
class Amount:
    """Any number between two bounds."""

    low: float
    high: float


@dataclass(frozen=True)
class Size:
    """A number of bytes between two bounds, or a text such as 64MiB."""

    low: int
    high: int


@dataclass(frozen=True, kw_only=True)
class Duration:
    """A number with a unit, such as 30m, or one of a few words."""

    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """A list of texts; with `or_one` also a single text."""

    or_one: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A mapping with keys of its own; with `words` or `or_flag` also one of a few words, or true and false."""

    words: tuple[str, ...] = ()
    or_flag: bool = False


@dataclass(frozen=True)
class Sections:
    """A list of mappings with keys of their own."""


@dataclass(frozen=True)
class NamedSections:
    """A mapping from names to mappings with keys of their own."""


@dataclass(frozen=True)
class Parts:
    """The fields of a struct: a list of mappings that have parts again, at any depth."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a nested type: the element of a list, the key or the value of a map. Also an expression, if so."""

    or_expression: bool = False


Form = (
    Text
    | Expression
    | Flag
    | Whole
    | Amount
    | Size
    | Duration
    | Choice
    | Texts
    | Section
    | Sections
    | NamedSections
    | Parts
    | Part
)


@dataclass(frozen=True, kw_only=True)
class TableFileKey:
    """One key of a table file.

    `path` writes `[]` for an entry of a list and `*` for a name: `columns[].name`, `groups.*.owner`. `default` is YAML,
    and `otherwise` a phrase where the default depends on something. `example` is YAML.
    """

    path: str
    form: Form
    says: str
    default: str | None = None
    otherwise: str = ""
    example: str = ""
    required: bool = False
    joins_only: bool = False

    @property
    def parent(self) -> str:
        """The path of the mapping that holds the key; empty for the file."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The key as the mapping holds it, such as `columns`."""
        return self.path.rpartition(".")[2].removesuffix("[]")


def known_keys(parent: str) -> set[str]:
    """The names of all keys of one mapping, such as `columns[]`."""
    return {key.name for key in KEYS if key.parent == parent}


def children_of(parent: str) -> Iterator[TableFileKey]:
    """All keys of one mapping, in order."""
    return (key for key in KEYS if key.parent == parent)


_ICEBERG, _MERGE, _CONTRACT, _LIMITS, _PUBLISH = (
    IcebergOptions(), MergePolicy(), Contract(), CheckLimits(), PublishPolicy(),
)  # fmt: skip
_NAME = Text(pattern=f"^{NAME.pattern}$")
_COLUMNS = Texts()
_OFFSET = r"^[+-](0\d|1[0-4]):[0-5]\d$"
_SHARE = Amount(0, 1)
_HOURS = Amount(0, LONGEST_CHECK_HOURS)
_MINUTES = Amount(0, 60 * LONGEST_CHECK_HOURS)


def _key(path: str, form: Form, says: str, **options: str | bool | None) -> TableFileKey:
    return TableFileKey(path=path, form=form, says=says, **options)  # type: ignore[arg-type]


def _parts() -> Iterator[TableFileKey]:
    """Yields the keys of a part of a nested type. An element, a key and a value have no name and no source."""
    of = "columns[].fields[]"
    yield _key(f"{of}.name", _NAME, "name of the field", required=True, example="account_id")
    yield _key(
        f"{of}.type",
        Text(),
        "a [type](lines-to-rows.md#types), nested again or not",
        otherwise="required",
        example="bigint",
    )
    yield _key(f"{of}.source", Text(), "its one key", otherwise="key of its name", example="accountId")
    yield _key(f"{of}.was", Text(), "former name, in the change that renames", otherwise="none", example="uid")
    yield _key(f"{of}.sensitive", Flag(), "`true`: the whole column is never shown", default="false", example="true")
    yield _key(
        f"{of}.length",
        Whole(1, DEFAULT_LENGTH),
        "bytes of a `string` or `json`",
        default=str(DEFAULT_LENGTH),
        example="500",
    )
    yield _key(
        f"{of}.source_offset", Text(pattern=_OFFSET), "offset of times without one", otherwise="UTC", example='"+09:00"'
    )
    yield _key(
        f"{of}.time_unit",
        Choice(tuple(TIME_UNITS)),
        "unit of unix times",
        otherwise="`seconds`",
        example="milliseconds",
    )
    yield _key(
        f"{of}.fields[]", Parts(), "fields of a `struct`", otherwise="none", example="[{name: id, type: bigint}]"
    )
    yield _key(f"{of}.element", Part(), "elements of a `list`", otherwise="none", example="{type: double}")
    yield _key(f"{of}.key", Part(), "keys of a `map`", otherwise="`{type: string}`", example="{length: 64}")
    yield _key(f"{of}.value", Part(), "values of a `map`", otherwise="none", example="{type: double}")


_TABLE = (
    _key("schema", _NAME, "schema of the table, and its database in catalogs", required=True, example="log"),
    _key("table", _NAME, "name of the table", required=True, example="signups"),
    _key("description", Text(longest=GLUE_DESCRIPTION), "text in Dagster and Glue", default='""', example="Sign-ups"),
    _key("owner", Text(longest=GLUE_OWNER), "e-mail address, or a team", otherwise="none", example="team:web"),
    _key("was", Text(), "former name, in the change that renames", otherwise="none", example="log.registrations"),
    _key("grace_days", Whole(0, LONGEST_GRACE), "days with both names in Glue", default=str(GRACE_DAYS), example="7"),
    _key("retired", Flag(), "`true` ends the streams", default="false", example="true"),
    _key("retention_days", Whole(1, LONGEST_RETENTION), "days before a day expires", otherwise="for ever",
         example="400"),
    _key("timestamps", Choice(tuple(FILE_FORMATS.values())), "unit in Parquet", default=FILE_FORMATS[MICROSECONDS],
         example="milliseconds"),
    _key("ducklake", Flag(), "clients of DuckLake see the table", default="true", example="false"),
    _key("symlink", Flag(), "second database for Athena, Trino, Hive", default="false", example="true"),
)  # fmt: skip

_STREAMS = (
    _key("streams[]", Sections(), "prefixes or topics that feed the table; none if `retired`", required=True,
         example='[{name: web, url: "s3://staging/web/"}]'),
    _key("streams[].name", Text(), "name of the stream", required=True, example="web"),
    _key("streams[].url", Text(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/(.*/)?$"), "prefix in S3",
         otherwise="or `topic`", example='"s3://staging/web/"'),
    _key("streams[].topic", Text(pattern=f"^{TOPIC.pattern}$"), "topic of Kafka", otherwise="or `url`",
         example="app.events"),
    _key("streams[].cluster", Text(pattern=f"^{CLUSTER.pattern}$"), "`main` reads the settings `PRISM_KAFKA_MAIN_…`",
         default=DEFAULT_CLUSTER, example="audit"),
    _key("streams[].start", Text(), f"first message: `{EARLIEST}`, `latest`, or one from a time on", default=EARLIEST,
         example='"2026-11-01T00:00:00Z"'),
    _key("streams[].tombstones", Choice(TOMBSTONES), "messages without a value", default=TOMBSTONES[0],
         example="reject"),
    _key("streams[].spool_days", Whole(1, LONGEST_SPOOL_DAYS), "days that converted messages can be read again",
         default=str(SPOOL_DAYS), example="7"),
    _key("streams[].flush", Section(), "end of the wait of messages in memory", otherwise="see below",
         example="{seconds: 1, bytes: 64MiB}"),
    _key("streams[].flush.seconds", Amount(LEAST_FLUSH_SECONDS, MOST_FLUSH_SECONDS), "seconds after the first message",
         default=f"{FLUSH_SECONDS:g}", example="5"),
    _key("streams[].flush.bytes", Size(LEAST_FLUSH_BYTES, MOST_FLUSH_BYTES), "bytes of messages in memory",
         default=f"{FLUSH_BYTES >> 20}MiB", example="16MiB"),
    _key("streams[].enabled", Flag(), "`false`: objects wait", default="true", example="false"),
    _key("streams[].discard", Flag(), "`true`: objects are never read", default="false", example="true"),
    _key("streams[].include", Texts(), "glob patterns of keys to read", otherwise="every key",
         example='["**/*.gz"]'),
    _key("streams[].exclude", Texts(), "glob patterns of keys to leave out", otherwise="none",
         example='["processing-failed/**"]'),
    _key("streams[].since", Text(pattern=r"^\d{4}-\d\d-\d\d$"), "first day of keys; `prism history` has earlier ones",
         otherwise="every day", example='"2026-11-01"'),
    _key("streams[].format", Section(words=("json", "parquet")), "lines, documents, Parquet, text, or messages",
         default="json",
         example='{json: {records: "$.Records[*]"}}'),
    _key("streams[].format.json", Section(), "documents with records", otherwise="lines",
         example='{records: "$.Records[*]"}'),
    _key("streams[].format.json.records", Text(pattern=r"^\$"), "path from a document to its records", required=True,
         example='"$.Records[*]"'),
    _key("streams[].format.csv", Section(), "lines of fields between delimiters", otherwise="none",
         example="{header: true}"),
    _key("streams[].format.csv.columns", Texts(), "names of the fields in order", otherwise="those of the `header`",
         example="[type, time, elb]"),
    _key("streams[].format.csv.header", Flag(), "`true`: the first line of each object names the fields",
         default="false", example="true"),
    _key("streams[].format.csv.delimiter", Text(), "character between fields", default='","', example='" "'),
    _key("streams[].format.csv.quote", Text(), 'character around fields; `""`: none', default="'\"'",
         example="\"'\""),
    _key("streams[].format.csv.escape", Text(), "makes the next character in quotes literal", otherwise="none",
         example="'\\'"),
    _key("streams[].format.csv.nulls", Texts(), "fields that stand for null", default='[""]', example='["-", ""]'),
    _key("streams[].format.regex", Text(), "RE2 with named groups, which are the fields", otherwise="none",
         example=r"'^(?P<ip>\S+) (?P<path>\S+)'"),
    _key("streams[].format.nulls", Texts(), "groups that stand for null, besides empty ones", otherwise="none",
         example='["-"]'),
    _key("streams[].format.protobuf", Section(), "messages with their lengths", otherwise="none",
         example="{descriptor: page.desc, message: shop.PageView}"),
    _key("streams[].format.protobuf.descriptor", Text(), "descriptor set beside the file", required=True,
         example="page.desc"),
    _key("streams[].format.protobuf.message", Text(), "full name of the message", required=True,
         example="shop.PageView"),
    _key("streams[].route", Section(), "share of a prefix with several tables", otherwise="everything",
         example='{by: $.kind, in: [signup]}'),
    _key("streams[].route.key", Text(), "glob pattern of the objects to read", otherwise="those of no other `key`",
         example='"*/ALB/*"'),
    _key("streams[].route.by", Text(), "field that gives lines to tables", otherwise="every line", example="$.kind"),
    _key("streams[].route.in", Texts(), "values of the field", otherwise="or `otherwise`", example="[signup, login]"),
    _key("streams[].route.otherwise", Flag(), "`true`: lines, or objects, of no other table", default="false",
         example="true"),
    _key("streams[].columns[]", Sections(), "columns that this stream reads in another way", otherwise="none",
         example="[{name: user_id, source: $.user.id}]"),
    _key("streams[].columns[].name", Text(), "a column of the table", required=True, example="user_id"),
    _key("streams[].columns[].source", Texts(or_one=True), "its source in this stream", otherwise="or `value`",
         example="$.user.id"),
    _key("streams[].columns[].value", Expression(), "its expression in this stream", otherwise="or `source`",
         example='"lower(kind)"'),
    _key("streams[].group", Text(), "group that the stream writes", otherwise="required", joins_only=True,
         example="front"),
    _key("streams[].delete", Expression(), "true for lines that delete", otherwise="nothing deletes",
         joins_only=True, example="\"op = 'D'\""),
)  # fmt: skip

_COLUMN = (
    _key("partition", Section(), "the day of a row", otherwise="see below", example="{timezone: Asia/Tokyo}"),
    _key("partition.column", Text(), "timestamp or date column", default="time", example="day"),
    _key("partition.timezone", Text(), "zone in which days begin", default="UTC", example="Asia/Tokyo"),
    _key("columns[]", Sections(), "columns in the order of readers", required=True,
         example="[{name: time, type: timestamp}]"),
    _key("columns[].name", _NAME, "name of the column", required=True, example="account_id"),
    _key("columns[].type", Text(), "a [type](lines-to-rows.md#types)", required=True, example='"decimal(12,2)"'),
    _key("columns[].description", Text(longest=GLUE_COMMENT), "comment in Glue and Dagster, one line",
         otherwise="none", example="0 for guests"),
    _key("columns[].source", Texts(or_one=True), "key, path, list, fact, pattern", otherwise="key of its name",
         example="[event_time, ts]"),
    _key("columns[].value", Part(or_expression=True), "SQL expression; the values of a `map`", otherwise="none",
         example='"lower(kind)"'),
    _key("columns[].fields[]", Parts(), "fields of a `struct`", otherwise="none",
         example="[{name: id, type: bigint}]"),
    _key("columns[].element", Part(), "elements of a `list`", otherwise="none", example="{type: double}"),
    _key("columns[].key", Part(), "keys of a `map`, `string` of any length", otherwise="`{type: string}`",
         example="{length: 64}"),
    *_parts(),
    _key("columns[].stored", Flag(), "`false`: only expressions see the column", default="true", example="false"),
    _key("columns[].sensitive", Flag(), "`true`: values are never shown", default="false", example="true"),
    _key("columns[].length", Whole(1, DEFAULT_LENGTH), "bytes of a `string` or `json`", default=str(DEFAULT_LENGTH),
         example="500"),
    _key("columns[].source_offset", Text(pattern=_OFFSET), "offset of times without one", otherwise="UTC",
         example='"+09:00"'),
    _key("columns[].time_unit", Choice(tuple(TIME_UNITS)), "unit of unix times", otherwise="`seconds`",
         example="milliseconds"),
    _key("columns[].required", Flag(), "`true`: lines without it are quarantined", default="false", example="true"),
    _key("columns[].was", Text(), "former name, in the change that renames", otherwise="none", example="uid"),
    _key("columns[].group", Text(), "group that writes the column", otherwise="none", joins_only=True,
         example="front"),
    _key("columns[].merge", Choice(MERGES), "rule for the value of a record", otherwise=f"`{WINNER}`",
         joins_only=True, example="last_non_null"),
    _key("keep", Expression(), "true for lines that are rows", otherwise="every line", example="\"kind <> 'probe'\""),
    _key("reject[]", Sections(), "conditions for quarantine", otherwise="none",
         example='[{when: "user_id < 0", reason: negative_id}]'),
    _key("reject[].when", Expression(), "true for lines to quarantine", required=True, example='"user_id < 0"'),
    _key("reject[].reason", _NAME, "reason in the quarantine", required=True, example="negative_id"),
    _key("contract", Section(), "lines that differ from the table", otherwise="see below",
         example="{new_fields: evolve}"),
    _key("contract.new_fields", Choice(NEW_FIELDS), "fields without a column", default=_CONTRACT.new_fields,
         example="evolve"),
    _key("contract.misfits", Choice(MISFITS), "values that do not fit", default=_CONTRACT.misfits,
         example="quarantine"),
    _key("contract.most_columns", Whole(1, MOST_COLUMNS), "columns, and fields of a struct, after which none is added",
         default=str(_CONTRACT.most_columns), example="100"),
    _key("accept", Section(), "event dates to accept", otherwise="see below", example="{past_days: 60}"),
    _key("accept.past_days", Whole(0, MOST_PAST_DAYS), "days before the object's time", default=str(PAST_DAYS),
         example="60"),
    _key("accept.future_days", Whole(0, MOST_FUTURE_DAYS), "days after the object's time", default=str(FUTURE_DAYS),
         example="1"),
    _key("accept.from", Choice(ACCEPT_FROM), "clock of the object's time", default=ACCEPT_FROM[0],
         example="arrival"),
)  # fmt: skip

_WRITING = (
    _key("merge", Section(), "merged objects", otherwise="see below", example="{interval: 1800}"),
    _key("merge.interval", Whole(0, LONGEST_MERGE_INTERVAL), "seconds between merges", default=str(_MERGE.interval),
         example="1800"),
    _key("merge.target_bytes", Whole(1, MOST_TARGET_BYTES), "size of a merged object",
         default=str(_MERGE.target_bytes), example="268435456"),
    _key("merge.max_objects", Whole(1, MOST_MERGE_OBJECTS), "small objects of one merge",
         default=str(_MERGE.max_objects), example="500"),
    _key("merge.sort_by", _COLUMNS, "order of rows; the partition column is first", otherwise="partition column",
         example="[time, user_id]"),
    _key("iceberg", Section(or_flag=True), "`true`, or options of the Iceberg table", default="false",
         example="true"),
    _key("iceberg.commit_seconds", Whole(1, LONGEST_COMMIT_SECONDS), "seconds between commits",
         default=str(_ICEBERG.commit_seconds), example="300"),
    _key("iceberg.keep_hours", Whole(1, LONGEST_SNAPSHOT_HOURS), "age of the oldest snapshot",
         default=str(_ICEBERG.keep_hours), example="24"),
    _key("iceberg.daily_tags", Whole(0, MOST_DAILY_TAGS), "switched days with a tag",
         default=str(_ICEBERG.daily_tags), example="30"),
    _key("iceberg.metrics", _COLUMNS, "columns with bounds in manifests", otherwise="columns of `sort_by`",
         example="[time, user_id]"),
    _key("iceberg.on_foreign", Choice(ON_FOREIGN), "after a commit of others", default=_ICEBERG.on_foreign,
         example="stop"),
    _key("freshness", Section(), "age of the newest rows", otherwise="no policy", example="{warn: 30m, fail: 2h}"),
    _key("freshness.warn", Duration(), "warning after", otherwise="none", example="30m"),
    _key("freshness.fail", Duration(), "failure after, 1m at least", required=True, example="2h"),
    _key("checks", Section(), "limits of the asset checks", otherwise="see below", example="{quarantine_rate: 0.05}"),
    _key("checks.quarantine_rate", _SHARE, "share of a day's lines", default=str(_LIMITS.quarantine_rate),
         example="0.05"),
    _key("checks.unmerged_hours", _HOURS, "hours after the day", default=str(_LIMITS.unmerged_hours), example="48"),
    _key("checks.closing_hours", _HOURS, "hours after the day", default=str(_LIMITS.closing_hours), example="12"),
    _key("checks.lag_minutes", _MINUTES, "minutes of a message at its broker", default=str(_LIMITS.lag_minutes),
         example="5"),
    _key("checks.too_late_rate", _SHARE, "share of a day's changes", default=str(_LIMITS.too_late_rate),
         joins_only=True, example="0.01"),
    _key("checks.join_rate", _SHARE, "share of records with all groups", default=str(_LIMITS.join_rate),
         joins_only=True, example="0.95"),
)  # fmt: skip

_JOIN = (
    _key("key", _COLUMNS, "columns that find a record", otherwise="required", joins_only=True,
         example="[request_id]"),
    _key("groups", NamedSections(), "parts of a record", otherwise="required", joins_only=True,
         example="{front: {sequence: [sent_at]}, back: {owner: true}}"),
    _key("groups.*.sequence", _COLUMNS, "order of changes; the greatest wins", otherwise="partition column",
         joins_only=True, example="[sent_at]"),
    _key("groups.*.owner", Flag(), "`true`: decides whether a record is there", default="false", joins_only=True,
         example="true"),
    _key("window", Duration(words=("forever",)), f"time between changes, {LONGEST_WINDOW // 86_400}d at most",
         otherwise="required", joins_only=True, example="3h"),
    _key("lateness", Duration(), "time between event and arrival", otherwise="required with a window",
         joins_only=True, example="1h"),
    _key("after", Choice(AFTER), "settled records stay, or go", default=SETTLE, joins_only=True, example="delete"),
    _key("buckets", Whole(1, MOST_BUCKETS), "parts by key, a power of two", default="16", joins_only=True,
         example="4"),
    _key("publish", Section(), "writing of changed records", otherwise="see below", joins_only=True,
         example="{every: 1m}"),
    _key("publish.every", Duration(), "time between folds", default=f"{_PUBLISH.every_seconds // 60}m",
         joins_only=True, example="1m"),
    _key("publish.dirty", _SHARE, "share of changed rows in an object", default=str(_PUBLISH.dirty),
         joins_only=True, example="0.5"),
    _key("publish.stale", Duration(), "longest wait of a change", default=f"{_PUBLISH.stale_seconds // 60}m",
         joins_only=True, example="10m"),
    _key("changes", Section(), "log of changes", otherwise="see below", joins_only=True,
         example="{retention_days: 30}"),
    _key("changes.retention_days", Whole(1, LONGEST_RETENTION), "days before changes expire", otherwise="for ever",
         joins_only=True, example="30"),
)  # fmt: skip

KEYS: tuple[TableFileKey, ...] = (*_TABLE, *_STREAMS, *_COLUMN, *_WRITING, *_JOIN)

_FORMS = {key.path: key.form for key in KEYS}


def form_of(path: str) -> Form:
    """The form of a key, such as `columns[].length`."""
    return _FORMS[path]
