"""Changes of tables: applied to the current definition they give the file's content, and nothing else."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.columns.change_kinds import AddColumn
from prism_assets.domain.columns.changes import StoredColumns, column_problems, continued_columns
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.transitions import ColumnWidening
from prism_assets.domain.columns.type_names import type_named
from prism_assets.domain.columns.types import BigIntType, ColumnType, IntegerType, SmallIntType
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.changes import AddStream, ChangeSetting, CreateTable, applied, describe
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.diff import changes_between
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.tables.options import ChangeLog, IcebergOptions, MergePolicy
from prism_assets_tests.builders import a_table

BEFORE = parse_table_file(a_table(), "t.yaml")
KNOWN = dataclasses.replace(
    BEFORE,
    table_id=7,
    version=3,
    columns=tuple(dataclasses.replace(column, column_id=number + 1) for number, column in enumerate(BEFORE.columns)),
)
COLOR = Column(name="color", type=type_named("string", {}), source="color", length=100)
MORE = Stream(name="more", bucket="staging", key_prefix="more/")


def test_a_new_table_is_created_and_then_gets_its_streams() -> None:
    created, *streams = changes_between(None, BEFORE)
    assert created == CreateTable(dataclasses.replace(BEFORE, streams=()))
    assert streams == [AddStream(BEFORE.streams[0])]
    assert describe("log.events", [created, *streams]) == (
        "create table log.events with 2 columns",
        "create stream events of log.events at s3://staging/events/",
    )


def test_a_table_as_it_is_has_no_changes() -> None:
    assert changes_between(KNOWN, KNOWN) == ()


def test_columns_streams_and_settings_are_changes_of_their_own() -> None:
    wanted = dataclasses.replace(
        KNOWN, columns=(COLOR, *KNOWN.columns), streams=(*KNOWN.streams, MORE), owner="me", retention_days=9
    )
    changes = changes_between(KNOWN, wanted)
    assert changes == (
        AddColumn(COLOR, 0),
        AddStream(MORE),
        ChangeSetting("owner", "me"),
        ChangeSetting("retention_days", 9),
    )
    assert describe("log.events", changes) == (
        "add column color string to log.events",
        "create stream more of log.events at s3://staging/more/",
        "keep days of log.events for 9 days",
        "update log.events: owner",
    )


def test_a_column_that_is_read_from_elsewhere_says_so() -> None:
    file = a_table(columns=["{name: account, type: bigint, was: user}"])
    known = dataclasses.replace(KNOWN, columns=(*KNOWN.columns, _read(file)))
    for text, said in (
        (file, ()),
        (a_table(columns=["{name: account, type: bigint, source: user}"]), ()),
        (a_table(columns=["{name: account, type: bigint}"]), ("the key account",)),
        (a_table(columns=["{name: account, type: bigint, source: [a, $.b]}"]), ("a, $.b",)),
        (a_table(columns=["{name: account, type: bigint, value: id + 1}"]), ("the expression id + 1",)),
    ):
        wanted = dataclasses.replace(known, columns=(*KNOWN.columns, _read(text)))
        assert describe("log.events", changes_between(known, wanted)) == tuple(
            f"read column account of log.events from {origin} instead of the key user" for origin in said
        )


def _with_n(kind: str) -> TableDefinition:
    made = parse_table_file(a_table(columns=[f"{{name: n, type: {kind}}}"]), "t.yaml")
    ids = tuple(dataclasses.replace(column, column_id=place) for place, column in enumerate(made.columns, start=1))
    return dataclasses.replace(made, table_id=7, version=3, columns=ids)


def test_a_column_is_widened_with_objects_of_before_and_its_way_ends() -> None:
    def continued(old: TableDefinition, file: TableDefinition, stored: StoredColumns) -> TableDefinition:
        assert list(column_problems(file, old, stored)) == []
        wanted = dataclasses.replace(old, columns=continued_columns(file, old, stored))
        changes = changes_between(old, wanted)
        assert applied(old, changes) == wanted
        assert TableDefinition.from_json(wanted.to_json()) == wanted
        return dataclasses.replace(wanted, version=old.version + 1)

    def written(old: TableDefinition) -> TableDefinition:
        """After the catalog run that has seen the wider type."""
        version = old.version + 1
        (before,) = [column for column in old.columns if column.widening]
        assert before.widening is not None
        assert before.widening.shown_first is not None
        widening = ColumnWidening(former=before.widening.former, version=version)
        column = dataclasses.replace(before, type=before.widening.shown_first, widening=widening)
        wanted = dataclasses.replace(old, columns=(*old.columns[:-1], column))
        changes = changes_between(old, wanted)
        assert describe("log.events", changes) == (
            f"write column n of log.events as {column.type.name}, which every catalog shows",
        )
        assert applied(old, changes) == wanted
        return dataclasses.replace(wanted, version=version)

    small, whole, big = map(_with_n, ("smallint", "integer", "bigint"))
    stored = StoredColumns(accept_failing_reads=True)
    assert continued(small, whole, StoredColumns(never_read=True)).rewritten_below == 0
    asked = continued(small, whole, stored)
    assert asked.column("n").widening == ColumnWidening(former=SmallIntType(), version=4, shown_first=IntegerType())
    assert (asked.column("n").type, asked.column("n").glue_type) == (SmallIntType(), "int")
    assert (asked.is_rewriting, asked.rewritten_below) == (False, 0)
    assert continued(asked, whole, StoredColumns()).columns == asked.columns
    (problem,) = column_problems(small, asked, stored)
    assert problem == ("n", "n is integer and cannot become smallint; add a column instead")
    widened = written(asked)
    assert (widened.is_rewriting, widened.rewritten_below) == (True, 5)
    assert continued(widened, whole, StoredColumns()).columns == widened.columns
    again = written(continued(widened, big, stored))
    assert again.column("n").widening == ColumnWidening(former=SmallIntType(), version=7)
    assert written(continued(asked, big, stored)).column("n") == dataclasses.replace(
        again.column("n"), widening=ColumnWidening(former=SmallIntType(), version=6)
    )
    ended = tuple(dataclasses.replace(column, widening=None) for column in again.columns)
    changes = changes_between(again, dataclasses.replace(again, columns=ended))
    assert describe("log.events", changes) == (
        "end the widening of column n of log.events to bigint: no object has smallint now",
    )
    assert applied(again, changes).rewritten_below == 0
    assert again.for_tasks().column("n").widening is None
    for on_the_way in (asked, widened):
        ((name, told),) = column_problems(big, on_the_way, StoredColumns())
        assert name == "n"
        assert told.startswith("n cannot become bigint yet: it is still on its way to integer")
    joined = dataclasses.replace(small, change_log=ChangeLog(lateness_seconds=None))
    ((_, told),) = column_problems(big, joined, stored)
    assert "columns of join tables cannot be widened yet" in told


def test_a_column_is_widened_by_copies_and_turned_to_them_at_once() -> None:
    def follows(old: TableDefinition, widening: ColumnWidening | None, kind: ColumnType, line: str) -> TableDefinition:
        columns = [
            dataclasses.replace(item, type=kind, widening=widening) if item.name == "n" else item
            for item in old.columns
        ]
        wanted = dataclasses.replace(old, columns=tuple(columns))
        changes = changes_between(old, wanted)
        assert applied(old, changes) == wanted
        assert TableDefinition.from_json(wanted.to_json()) == wanted
        assert describe("log.events", changes) == (line,)
        return dataclasses.replace(wanted, version=old.version + 1)

    small, whole, big = map(_with_n, ("smallint", "integer", "bigint"))
    copying = ColumnWidening(former=SmallIntType(), version=4, copy_type=IntegerType())
    assert list(column_problems(whole, small, StoredColumns())) == []
    assert continued_columns(whole, small, StoredColumns())[-1].widening == copying
    first = follows(
        small,
        copying,
        SmallIntType(),
        "widen column n of log.events from smallint to integer: merged objects are copied with this type, and once "
        "all have a copy, the copies replace them in one step; until then the column is smallint for every reader",
    )
    assert (first.is_copying, first.copies_since, first.is_flipping, first.is_rewriting) == (True, 4, False, False)
    assert (first.column("n").glue_type, first.column("n").wanted_type) == ("smallint", IntegerType())
    assert (first.with_copied_types().column("n").type, first.for_tasks().with_copied_types()) == (
        IntegerType(),
        first.with_copied_types().for_tasks(),
    )
    assert continued_columns(whole, first, StoredColumns()) == first.columns
    turning = dataclasses.replace(copying, is_flipping=True, flip_version=5)
    line = "begin to flip column n of log.events as integer: new objects wait, 60 minutes at most, until all days "
    second = follows(first, turning, SmallIntType(), line + "are closed, merged and copied")
    assert (second.is_flipping, turning.since) == (True, 5)
    given_up = dataclasses.replace(copying, flip_version=6)
    line = "give up the flip of column n of log.events as integer for now: new objects are taken in again"
    assert not follows(second, given_up, SmallIntType(), line).is_flipping
    line = "flip column n of log.events to integer: its copies replace all objects"
    assert not follows(second, None, IntegerType(), line).is_copying
    for before in (first, second):
        wider = continued_columns(big, before, StoredColumns())[-1]
        assert wider.widening == ColumnWidening(
            former=SmallIntType(), version=before.version + 1, copy_type=BigIntType()
        )
        at_once = continued_columns(whole, before, StoredColumns(accept_failing_reads=True))[-1]
        assert at_once.widening == ColumnWidening(
            former=SmallIntType(), version=before.version + 1, shown_first=IntegerType()
        )
    line = (
        "show column n of log.events as integer at once, and write objects with this type once every catalog shows it"
    )
    assert not follows(second, at_once.widening, SmallIntType(), line).is_flipping


def _read(text: str) -> Column:
    """Returns the column account of a table file, as currently in force."""
    return dataclasses.replace(parse_table_file(text, "t.yaml").column("account"), column_id=9)


def test_options_of_iceberg_are_told_whole_and_so_is_their_end() -> None:
    options = IcebergOptions(commit_seconds=30, metrics=("time", "id"))
    begun = changes_between(KNOWN, dataclasses.replace(KNOWN, iceberg=options))
    assert describe("log.events", begun) == (
        "publish log.events as an Iceberg table, too, with commit_seconds: 30, keep_hours: 4, daily_tags: 0, "
        "metrics: [time, id], on_foreign: restore",
    )
    ended = changes_between(dataclasses.replace(KNOWN, iceberg=options), KNOWN)
    assert describe("log.events", ended) == ("publish log.events as an Iceberg table no longer",)


columns = st.lists(
    st.builds(
        Column,
        name=st.sampled_from("abcdef"),
        type=st.sampled_from([type_named("string", {}), type_named("bigint", {})]),
        source=st.sampled_from("xy"),
        length=st.none() | st.integers(1, 9),
        required=st.booleans(),
    ),
    unique_by=lambda column: column.name,
    max_size=4,
)
streams = st.lists(
    st.builds(
        Stream,
        name=st.sampled_from("st"),
        bucket=st.just("b"),
        key_prefix=st.sampled_from("xyz"),
        enabled=st.booleans(),
    ),
    unique_by=lambda stream: stream.url,
    max_size=3,
)


@st.composite
def definitions(draw: st.DrawFn) -> tuple[TableDefinition, TableDefinition]:
    """Returns a current table, and a possible file of it: columns go, stay in any order, and others come."""
    old = [dataclasses.replace(column, column_id=number + 1) for number, column in enumerate(draw(columns))]
    names = {column.name for column in old}
    kept = [
        dataclasses.replace(column, source=draw(st.sampled_from("xy")), length=draw(st.none() | st.integers(1, 9)))
        for column in old
        if draw(st.integers(0, 3))
    ]
    new = draw(st.permutations([*kept, *(column for column in draw(columns) if column.name not in names)]))
    before = dataclasses.replace(KNOWN, columns=tuple(old), streams=tuple(draw(streams)))
    merge = draw(st.builds(MergePolicy, interval=st.integers(0, 3)))
    owner = draw(st.none() | st.just("me"))
    iceberg = draw(st.none() | st.builds(IcebergOptions, keep_hours=st.integers(1, 3)))
    return before, dataclasses.replace(
        before, columns=tuple(new), streams=tuple(draw(streams)), merge=merge, owner=owner, iceberg=iceberg
    )


@given(definitions())
def test_the_changes_made_to_what_is_in_force_give_what_is_wanted(
    case: tuple[TableDefinition, TableDefinition],
) -> None:
    old, new = case
    changes = changes_between(old, new)
    assert applied(old, changes) == new
    assert (changes == ()) == (old == new)
    assert applied(None, changes_between(None, new)) == new
