"""Commits between the recorded head of an Iceberg table and the head in its catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.iceberg.head import HeadChange, Obstacle, TableHead, compare_head, obstacle_of
from prism_assets.domain.iceberg.snapshots import FAILED, FOREIGN, KnownTable, RetainedSnapshot
from prism_assets_tests.builders import utc

THEIRS = RetainedSnapshot(snapshot_id=9, parent_id=1, sequence_number=9, time=utc("2026-03-01T12:00"), is_ours=False)


def known(table_uuid: str | None = "ours", snapshot_id: int | None = 1) -> KnownTable:
    return KnownTable(table_id=1, identifier="log_iceberg.events", table_uuid=table_uuid, snapshot_id=snapshot_id)


def a_head(snapshot_id: int | None = 1, **more: Any) -> TableHead:
    fields = {"identifier": "log_iceberg.events", "table_uuid": "ours", "is_ours": True, **more}
    return TableHead(snapshot_id=snapshot_id, **fields)


STRUCK = a_head(9, others=(THEIRS,))


class Case(NamedTuple):
    name: str
    known: KnownTable | None
    head: TableHead | None
    head_change: HeadChange


BEGUN = known(table_uuid=None, snapshot_id=None)
CASES = [
    Case("the recorded head is the head", known(), a_head(), HeadChange.SAME),
    Case("a table without a snapshot is as it was", known(snapshot_id=None), a_head(None), HeadChange.SAME),
    Case("nothing is recorded and nothing is there", None, None, HeadChange.NEW),
    Case("a table that was begun is not there yet", BEGUN, None, HeadChange.NEW),
    Case("a table that was made and not recorded is ours", BEGUN, a_head(None), HeadChange.OURS),
    Case("a commit of ours was not recorded", known(), a_head(2), HeadChange.OURS),
    Case("a record went back", known(snapshot_id=7), a_head(8), HeadChange.OURS),
    Case("the catalog was restored to a snapshot of ours", known(snapshot_id=7), a_head(3), HeadChange.OURS),
    Case(
        "somebody put the table back to a snapshot of ours",
        known(snapshot_id=7),
        a_head(3, was_rolled_back=True),
        HeadChange.FOREIGN,
    ),
    Case("another installation has recorded our table", known(), a_head(is_ours=False), HeadChange.TAKEN),
    Case("somebody took the head away", known(), a_head(None), HeadChange.OURS),
    Case("somebody committed", known(), a_head(9, others=(THEIRS,)), HeadChange.FOREIGN),
    Case("somebody committed before the first record", BEGUN, a_head(9, others=(THEIRS,)), HeadChange.FOREIGN),
    Case("the catalog lost the table", known(), None, HeadChange.LOST),
    Case("another table has the name", known(), a_head(table_uuid="theirs", is_ours=False), HeadChange.REPLACED),
    Case("another table of ours has the name", known(), a_head(table_uuid="older"), HeadChange.REPLACED),
    Case("the name was taken before we came", BEGUN, a_head(is_ours=False), HeadChange.TAKEN),
    Case("the name was taken and nothing is recorded", None, a_head(is_ours=False), HeadChange.TAKEN),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_head_is_compared_with_the_record(case: Case) -> None:
    assert compare_head(case.known, case.head) is case.head_change


TABLES = st.none() | st.builds(known, st.sampled_from([None, "ours", "theirs"]), st.none() | st.integers(1, 3))
HEADS = st.none() | st.builds(
    a_head,
    st.none() | st.integers(1, 3),
    table_uuid=st.sampled_from(["ours", "theirs"]),
    is_ours=st.booleans(),
    others=st.sampled_from([(), (THEIRS,)]),
)


@given(TABLES, HEADS)
def test_recorded_contents_are_taken_for_listed_only_where_head_and_table_are_the_recorded_ones(
    table: KnownTable | None, head: TableHead | None
) -> None:
    same = compare_head(table, head) is HeadChange.SAME
    assert same == (
        table is not None
        and head is not None
        and head.is_ours
        and (head.table_uuid, head.snapshot_id) == (table.table_uuid, table.snapshot_id)
    )


@given(TABLES, HEADS)
def test_a_table_of_others_is_never_changed(table: KnownTable | None, head: TableHead | None) -> None:
    recorded = table.table_uuid if table else None
    if head is not None:
        held = obstacle_of(table, head, "log.events", "restore")
        is_theirs = recorded not in (None, head.table_uuid) or not head.is_ours
        assert (held is not None and held.state == FAILED) == is_theirs


def test_people_are_told_who_has_the_name_and_what_to_do() -> None:
    replaced = obstacle_of(known(table_uuid="older"), a_head(), "log.events", "restore")
    taken = obstacle_of(known(), a_head(is_ours=False), "log.events", "restore")
    assert "`prism iceberg register log.events`" in str(replaced)
    assert "log_iceberg.events" in str(taken)
    assert "PRISM_ICEBERG_DATABASE_SUFFIX" in str(taken)


def test_people_are_told_which_commit_of_others_was_the_last() -> None:
    held = obstacle_of(known(), STRUCK, "log.events", "restore")
    assert "1 of its snapshots, the last one 9 of 2026-03-01 12:00:00Z" in str(held)


def test_commits_of_others_are_told_once_and_then_taken_back_or_wait_for_a_person() -> None:
    told = replace(known(), state=FOREIGN)
    assert held_by(known(), "restore").reason.endswith("; the next run restores the published content")
    assert obstacle_of(told, STRUCK, "log.events", "restore") is None
    for table in (known(), told):
        assert "before `prism iceberg restore log.events`" in held_by(table, "stop").reason


def held_by(table: KnownTable, on_foreign: str) -> Obstacle:
    held = obstacle_of(table, STRUCK, "log.events", on_foreign)
    assert held is not None
    assert held.state == FOREIGN
    return held
