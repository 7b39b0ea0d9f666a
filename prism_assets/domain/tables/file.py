"""Reads `tables/<schema>/<table>.yaml`. Every problem names file, line and field, and all are reported at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.entries import ColumnEntries, expression, read_columns, read_stream_columns
from prism_assets.domain.columns.names import names_in_file, unknown_column
from prism_assets.domain.columns.parts import leaf_fields, paths_of
from prism_assets.domain.columns.types import FILE_FORMATS, MICROSECONDS, MILLISECONDS, part_count
from prism_assets.domain.days.limits import CheckLimits, Freshness
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.names import (
    LONGEST_NAME,
    NAME_RULE,
    RESERVED_SCHEMAS,
    TableName,
    is_name,
    must_be_one_of,
)
from prism_assets.domain.records.change_log import SUFFIX
from prism_assets.domain.records.join_file import JOIN_KEYS, JoinEntry, read_join, refuse_group
from prism_assets.domain.records.joins import CHANGE_DELETED
from prism_assets.domain.service_limits import (
    GLUE_OWNER,
    MOST_PARTS,
    column_count_problem,
    description_problems,
    length_of,
)
from prism_assets.domain.streams.format import ReadFile, no_file, read_format
from prism_assets.domain.streams.key_patterns import MOST_PATTERNS, pattern_problem
from prism_assets.domain.streams.route_entry import read_route
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.streams.topic_entry import read_topic, refuse_format
from prism_assets.domain.tables.definition import (
    FUTURE_DAYS,
    GRACE_DAYS,
    PAST_DAYS,
    TableDefinition,
)
from prism_assets.domain.tables.file_keys import (
    children_of,
    known_keys,
)
from prism_assets.domain.tables.options import Contract, IcebergOptions, MergePolicy
from prism_assets.domain.tables.outer_sources import outer_problems
from prism_assets.domain.tables.row_program import value_field
from prism_assets.domain.tables.yaml_mapping import (
    COLUMN_NAMES,
    Problems,
    YamlMapping,
    check_unique,
    compose,
    plain,
    read_name,
)

_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<prefix>.*)")
_SHORTEST_FRESHNESS = timedelta(minutes=1)  # Dagster accepts nothing shorter
_NO_OPERATORS = (
    "this version has no operators: columns say with source and value what becomes of a line, keep and reject which "
    "lines are rows; docs/lines-to-rows.md names the form for each operator"
)
_NO_MILLISECONDS = (
    "needs timestamps in microseconds: Iceberg on Spark compares statistics in milliseconds with literals in "
    "microseconds, and returns wrong rows; remove timestamps: milliseconds, or iceberg"
)


def parse_table_file(text: str, path: str, read_file: ReadFile = no_file) -> TableDefinition:
    """Parses one table file. Raises DefinitionError with one line per problem: `path:line: field: message`.

    `read_file` reads files that the table file names by their path from there.
    """
    problems = Problems(path)
    root = compose(text, path)
    if not isinstance(root, yaml.MappingNode):
        raise DefinitionError(f"{path}:1: the file must hold one mapping with the fields schema, table, …")
    top = YamlMapping(root, "", problems)
    definition = _definition(top, path, read_file)
    if not problems.found:
        problems.found += outer_problems(definition)
    if problems.found:
        raise DefinitionError("\n".join(problems.found))
    return definition


def _definition(top: YamlMapping, path: str, read_file: ReadFile) -> TableDefinition:
    top.only(known_keys("") | {"operators"})
    if "operators" in top.children:
        top.complain("operators", _NO_OPERATORS)
    partition = top.mapping("partition")
    partition.only(known_keys("partition"))
    accept = top.mapping("accept")
    accept.only(known_keys("accept"))
    entries = read_columns(top)
    columns = entries.stored
    if problem := column_count_problem(len(columns)):
        top.complain("columns", problem)
    _check_parts(top, columns)
    partition_column = partition.text("column", "time")
    _check_partition_column(top, partition, partition_column, entries)
    join = read_join(top, entries, partition_column)
    file_format = _file_format(top)
    retired = top.flag("retired", False)
    streams, places = ((), {}) if retired else _streams(top, entries, join, read_file)
    if join is not None:
        _check_join(top, join, streams)
    return TableDefinition(
        name=TableName(_schema(top), read_name(top, "table")),
        description=_description(top),
        owner=_owner(top),
        streams=streams,
        partition_column=partition_column,
        timezone=_timezone(partition),
        columns=entries.with_required(partition_column, *(join.options.key if join else ())),
        unstored=entries.unstored,
        computed=entries.computed,
        keep=entries.keep,
        reject=entries.reject,
        contract=_contract(top.mapping("contract")),
        merge=_merge(top.mapping("merge"), partition_column, columns),
        past_days=accept.number("past_days", PAST_DAYS),
        future_days=accept.number("future_days", FUTURE_DAYS),
        retention_days=top.number("retention_days", None),
        accept_from=accept.choice("from", "object"),
        file_format=file_format,
        iceberg=_iceberg(top, columns, file_format),
        ducklake=top.flag("ducklake", True),
        symlink=top.flag("symlink", False),
        retired=retired,
        join=join.options if join else None,
        changes_days=join.days_of_changes() if join else None,
        was=_was(top),
        grace_days=top.number("grace_days", GRACE_DAYS),
        says_format="timestamps" in top.children,
        path=path,
        places={
            **entries.places,
            **places,
            **_places_of_formats(top),
            **({key: top.place(key) for key in JOIN_KEYS} if join else {}),
            "was": top.place("was"),
            "symlink": top.place("symlink"),
            "table": top.place("table"),
        },
        freshness=None if retired else _freshness(top.mapping("freshness")),
        limits=_limits(top.mapping("checks"), is_join=join is not None),
    )


def _check_join(top: YamlMapping, join: JoinEntry, streams: Sequence[Stream]) -> None:
    join.check(streams)
    if len(top.text("table", "")) + len(SUFFIX) > LONGEST_NAME:
        top.complain("table", f"must be shorter by {len(SUFFIX)} characters: the log of its changes ends with {SUFFIX}")


def _schema(top: YamlMapping) -> str:
    schema = read_name(top, "schema")
    if why := RESERVED_SCHEMAS.get(schema):
        top.complain("schema", f"{schema} is taken: {why}; choose another name")
    return schema


def _was(top: YamlMapping) -> TableName | None:
    """Returns the former name of the table. It may stay in the file after the rename."""
    text: str | None = top.text("was", None)
    if text is None:
        return None
    schema, _, table = text.partition(".")
    if not (is_name(schema) and is_name(table)):
        top.complain("was", f"must be the former name of the table, as schema.table; each part {NAME_RULE}")
    elif text == f"{top.text('schema', '')}.{top.text('table', '')}":
        top.complain("was", "is the current name of the table; give the former one")
    return TableName(schema, table)


def _file_format(top: YamlMapping) -> int:
    """Returns the unit of stored timestamps: Iceberg needs microseconds, some older Parquet readers know only
    milliseconds.
    """
    unit: str = top.text("timestamps", "microseconds")
    found = [file_format for file_format, name in FILE_FORMATS.items() if name == unit]
    if not found:
        top.complain("timestamps", must_be_one_of(unit, FILE_FORMATS.values()))
    return found[0] if found else MICROSECONDS


def _iceberg(top: YamlMapping, columns: tuple[Column, ...], file_format: int) -> IcebergOptions | None:
    """Returns the options of `iceberg:`; true means all defaults. None if the table is not published to Iceberg."""
    node = top.children.get("iceberg")
    given = None if node is None else plain(node)
    if given is None or given is False:
        return None
    if given is not True and not isinstance(node, yaml.MappingNode):
        top.complain("iceberg", "must be true, false or a mapping")
        return None
    if file_format == MILLISECONDS:
        top.complain("iceberg", _NO_MILLISECONDS)
    options = YamlMapping(node if isinstance(node, yaml.MappingNode) else None, "iceberg", top.problems)
    options.only(known_keys("iceberg"))
    default = IcebergOptions()
    return IcebergOptions(
        commit_seconds=options.number("commit_seconds", default.commit_seconds),
        keep_hours=options.number("keep_hours", default.keep_hours),
        daily_tags=options.number("daily_tags", default.daily_tags),
        metrics=_metrics(options, columns),
        on_foreign=options.choice("on_foreign", IcebergOptions().on_foreign),
    )


def _metrics(iceberg: YamlMapping, columns: tuple[Column, ...]) -> tuple[str, ...]:
    names = iceberg.texts(
        "metrics", COLUMN_NAMES, empty="must name a column; without it they are those that rows are sorted by"
    )

    def problem_of(name: str) -> str | None:
        is_sensitive = _is_sensitive(name, columns)
        return _leaf_problem(name, columns) or (
            f"{name} is sensitive, and metrics hold values" if is_sensitive else None
        )

    iceberg.check_each("metrics", names, problem_of)
    return names


def _contract(contract: YamlMapping) -> Contract:
    contract.only(known_keys("contract"))
    default = Contract()
    return Contract(
        new_fields=contract.choice("new_fields", default.new_fields),
        misfits=contract.choice("misfits", default.misfits),
        most_columns=contract.number("most_columns", default.most_columns),
    )


def _description(top: YamlMapping) -> str:
    text: str = top.text("description", "")
    for problem in description_problems(text):
        top.complain("description", problem)
    return text


def _owner(top: YamlMapping) -> str | None:
    """Returns the owner in Dagster's form: an e-mail address or `team:name`."""
    owner: str | None = top.text("owner", None)
    if owner is not None and "@" not in owner and not (owner.startswith("team:") and len(owner) > len("team:")):
        top.complain("owner", f"{owner} must be an e-mail address or look like team:web")
    if owner is not None and length_of(owner) > GLUE_OWNER:
        top.complain("owner", f"must have at most {GLUE_OWNER} bytes: Glue takes no longer one")
    return owner


def _streams(
    top: YamlMapping, columns: ColumnEntries, join: JoinEntry | None, read_file: ReadFile
) -> tuple[tuple[Stream, ...], dict[str, str]]:
    """Returns the streams, and their positions in the file: each by its URL, and the expressions of its columns."""
    entries = top.sequence("streams")
    check_unique(entries, "name", lambda entry: str(entry.read("name", str, "", "text")))
    streams, places = [], dict[str, str]()
    for entry in entries:
        entry.only(known_keys("streams[]"))
        topic = read_topic(entry)
        bucket, key_prefix = (topic.bucket, topic.key_prefix) if topic else _prefix(entry)
        stream = Stream(
            name=entry.text("name"),
            bucket=bucket,
            key_prefix=key_prefix,
            topic=topic,
            enabled=entry.flag("enabled", True),
            discard=entry.flag("discard", False),
            format=read_format(entry, read_file),
            group=entry.text("group", None),
            delete=expression(entry, "delete") if "delete" in entry.children else None,
            include=_patterns(entry, "include"),
            exclude=_patterns(entry, "exclude"),
            since=_since(entry),
            route=read_route(entry),
        )
        refuse_format(entry, stream)
        own, places_of_own = read_stream_columns(entry, columns, stream.url)
        stream = replace(stream, columns=own)
        if join is None:
            refuse_group(entry, "delete")
        else:
            join.check_stream(entry, stream)
        streams.append(stream)
        places |= {stream.url: entry.place("topic" if topic else "url"), **places_of_own}
        places[f"{stream.url} {value_field(CHANGE_DELETED)}"] = entry.place("delete")
    _check_topics(entries, streams)
    return tuple(streams), places


def _prefix(stream: YamlMapping) -> tuple[str, str]:
    """Returns bucket and prefix of `url`."""
    match = _URL.fullmatch(stream.text("url", "") or "")
    if match is None:
        missing = "" if "url" in stream.children else ", or `topic` must name a topic of Kafka"
        stream.complain("url", f"must be s3://bucket/prefix/{missing}")
        return "", ""
    if match["prefix"] and not match["prefix"].endswith("/"):
        stream.complain("url", "must end with / so that it takes in whole folders only")
    return match["bucket"], match["prefix"]


def _check_topics(entries: Sequence[YamlMapping], streams: Sequence[Stream]) -> None:
    seen: dict[str, str] = {}
    for entry, stream in zip(entries, streams, strict=True):
        if stream.topic is not None and (first := seen.setdefault(stream.url, stream.name)) != stream.name:
            entry.complain("topic", f"{stream.url} is read by {first}, too: a table reads a topic once")


def _patterns(stream: YamlMapping, key: str) -> tuple[str, ...]:
    """Returns the glob patterns of `include` or `exclude`."""
    patterns = stream.texts(key, "a list of glob patterns")
    if len(patterns) > MOST_PATTERNS:
        stream.complain(key, f"has {len(patterns)} patterns; {MOST_PATTERNS} are the most")
    stream.check_each(key, patterns, pattern_problem)
    return patterns


def _since(stream: YamlMapping) -> str | None:
    """Returns the day of `since` as YYYY-MM-DD. YAML makes a date of text without quotes."""
    if "since" not in stream.children:
        return None
    given = plain(stream.children["since"])
    if isinstance(given, date) and not isinstance(given, datetime):
        return given.isoformat()
    try:
        return date.fromisoformat(given).isoformat()
    except (TypeError, ValueError):
        stream.complain("since", f"{given} must be a day, such as 2026-11-01")
        return None


def _places_of_formats(top: YamlMapping) -> dict[str, str]:
    """Returns the positions of streams' formats, for problems found at their use."""
    node = top.children.get("streams")
    entries = node.value if isinstance(node, yaml.SequenceNode) else []
    streams = [YamlMapping(entry, "", top.problems) for entry in entries if isinstance(entry, yaml.MappingNode)]
    return {
        field: f"{top.problems.path}:{stream.children['format'].start_mark.line + 1}: {field}"
        for number, stream in enumerate(streams)
        if "format" in stream.children
        for field in (f"streams[{number}].format.protobuf", f"streams[{number}].format.regex")
    }


def _timezone(partition: YamlMapping) -> str:
    zone: str = partition.text("timezone", "UTC")
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        partition.complain("timezone", f"{zone} is not a time zone name such as Asia/Tokyo")
        return "UTC"
    return zone


def _check_partition_column(top: YamlMapping, partition: YamlMapping, name: str, entries: ColumnEntries) -> None:
    owner, key = (partition, "column") if partition.node else (top, "partition")
    found = [column for column in entries.stored if column.name == name]
    if any(column.name == name for column in entries.unstored):
        owner.complain(key, f"the partition column {name} must be stored")
    elif not found:
        owner.complain(key, f"the partition column {name} is not among the columns{_near(name, entries.stored)}")
    elif not found[0].type.may_partition:
        owner.complain(key, f"the partition column {name} must be a timestamp or a date")
    elif found[0].sensitive:
        owner.complain(key, f"the partition column {name} cannot be sensitive: keys and records of objects tell it")


def _merge(merge: YamlMapping, partition_column: str, columns: tuple[Column, ...]) -> MergePolicy:
    merge.only(known_keys("merge"))
    default = MergePolicy()
    sort_by = merge.texts("sort_by", COLUMN_NAMES, (partition_column,))
    for name in sort_by:
        if (problem := _leaf_problem(name, columns)) and "sort_by" in merge.children:
            merge.complain("sort_by", problem)
        elif _is_sensitive(name, columns):
            merge.complain(
                "sort_by", f"{name} is sensitive, and bounds of the columns that rows are sorted by are kept"
            )
    if sort_by and sort_by[0] != partition_column:
        merge.complain("sort_by", f"must begin with the partition column {partition_column}")
    return MergePolicy(
        interval=merge.number("interval", default.interval),
        target_bytes=merge.number("target_bytes", default.target_bytes),
        max_objects=merge.number("max_objects", default.max_objects),
        sort_by=sort_by,
    )


def _freshness(freshness: YamlMapping) -> Freshness | None:
    if freshness.node is None:
        return None
    freshness.only(known_keys("freshness"))
    warn, fail = freshness.duration("warn"), freshness.duration("fail")
    for key, value in (("warn", warn), ("fail", fail)):
        if value is not None and value < _SHORTEST_FRESHNESS:
            freshness.complain(key, "must be 1m or more")
    if "fail" not in freshness.children:
        freshness.complain("fail", "is missing")
    if warn is not None and fail is not None and warn >= fail:
        freshness.complain("warn", "must be shorter than fail")
    return None if fail is None else Freshness(warn=warn, fail=fail)


def _limits(checks: YamlMapping, *, is_join: bool) -> CheckLimits:
    checks.only({key.name for key in children_of("checks") if is_join or not key.joins_only})
    default = CheckLimits()
    return CheckLimits(
        quarantine_rate=checks.amount("quarantine_rate", default.quarantine_rate),
        unmerged_hours=checks.amount("unmerged_hours", default.unmerged_hours),
        closing_hours=checks.amount("closing_hours", default.closing_hours),
        lag_minutes=checks.amount("lag_minutes", default.lag_minutes),
        too_late_rate=checks.amount("too_late_rate", default.too_late_rate),
        join_rate=checks.amount("join_rate", default.join_rate),
    )


def _near(name: object, columns: tuple[Column, ...]) -> str:
    return unknown_column(str(name), [column.name for column in columns], names_in_file(columns))


def _is_sensitive(name: str, columns: tuple[Column, ...]) -> bool:
    """Whether a column, or a part around or at the end of a path, is sensitive."""
    first = str(name).partition(".")[0]
    for column in columns:
        if column.name == first:
            above = {path for path, part in paths_of(first, column.type) if part.sensitive}
            return column.sensitive or any(f"{name}.".startswith(f"{path}.") for path in above)
    return False


def _leaf_problem(name: object, columns: tuple[Column, ...]) -> str | None:
    """Returns why rows cannot be sorted by `name`, or have metrics of it: it is no column and no leaf of a struct."""
    text = str(name)
    found = [column for column in columns if column.name == text.partition(".")[0]]
    if not found or (found[0].name != text and not found[0].type.parts):
        return f"{text} is not among the columns{_near(text, columns)}"
    leaves = [".".join(names) for names, _ in leaf_fields(found[0].name, found[0].type)]
    if found[0].type.parts and text not in leaves:
        choices = f"; its leaves are {', '.join(leaves)}" if leaves else "; only fields of structs can be"
        return f"{text} has no order: it is no leaf of {found[0].name} outside of lists and maps{choices}"
    return None


def _check_parts(top: YamlMapping, columns: tuple[Column, ...]) -> None:
    count = sum(part_count(column.type) for column in columns)
    if count > MOST_PARTS:
        top.complain("columns", f"have {count:,} fields and other parts; at most {MOST_PARTS:,}: make some json")
