"""Staged files: ready for the commit of their rewrite, and read by nobody before."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from prism_assets.domain.errors import InvariantBroken, LeaseLost, StaleRewrite
from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.files.rewrites import Certificate, Replacement, RewriteKind, TableRewrite
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.rewrites import rewrites, staged_files, widenings
from prism_assets.stages.rewrite.commit import commit_rewrite, commit_staged, stage_range
from prism_assets_tests.metadata.rows import DAY, KEYS, Rows, a_planned_range, begin_rewrite, insert_small, merge_range


@pytest.fixture
def days(rows: Rows) -> tuple[int, int]:
    """Two days of a table that is widened, with a range each."""
    table = rows.table()
    dates = (DAY, DAY + timedelta(days=1))
    found = (rows.partition(table, dates[0]), rows.partition(table, dates[1]))
    for partition, day, staging in zip(found, dates, rows.staging(table, 2), strict=True):
        with rows.database.begin() as connection:
            insert_small(connection, table, staging, day=day)
            merge_range(
                connection, partition, a_planned_range(small_objects.load_above(connection, KEYS, partition, 0))
            )
    with rows.database.begin() as connection:
        widenings.begin(connection, table.table_id, table.version, "w")
    return found


def widening(rows: Rows) -> TableRewrite:
    with rows.database.begin() as connection:
        found = widenings.find(connection, rows.value("SELECT prism_table_id FROM prism_tables"))
    assert found is not None
    return found


def the_range(rows: Rows, partition: int) -> MergedRange:
    with rows.database.begin() as connection:
        (found,) = merge_ranges.load_chain(connection, KEYS, partition)
    return found


def stage(rows: Rows, partition: int, copied: MergedRange | None = None, **more: Any) -> int:
    """Stages a copy of the range of a day; returns the number in its key."""
    copied = copied or the_range(rows, partition)
    with rows.database.begin() as connection:
        number = begin_rewrite(connection, partition, RewriteKind.WIDEN).rewrite_id
        item = Replacement.in_place_of(copied, replace(copied, rewrite_id=number, content_length=7, **more))
        stage_range(connection, widening(rows), partition, item, Certificate.SAME_ROWS)
    return number


def adopt(rows: Rows, partition: int) -> int:
    """Replaces the range of a day by another object with the same rows; returns its rewrite."""
    before = the_range(rows, partition)
    with rows.database.begin() as connection:
        partitions.lock_partition(connection, partition)
        rewrite = begin_rewrite(connection, partition, RewriteKind.ADOPT)
        item = Replacement.in_place_of(before, replace(before, rewrite_id=rewrite.rewrite_id))
        commit_rewrite(connection, rewrite, [item], Certificate.SAME_ROWS)
    return rewrite.rewrite_id


def flip(rows: Rows) -> None:
    with rows.database.begin() as connection:
        staged = staged_files.load_replacements(connection, KEYS, widening(rows))
        commit_staged(connection, widening(rows), staged, Certificate.SAME_ROWS)


def standing(rows: Rows) -> list[int]:
    """The rewrites of the current ranges, by day."""
    found = rows.sql(
        "SELECT rewrite_id FROM prism_merge_ranges WHERE lower_bound IS NOT NULL ORDER BY prism_partition_id"
    )
    return [row.rewrite_id for row in found]


def uncopied(rows: Rows, partition: int) -> int:
    with rows.database.begin() as connection:
        return len(widenings.find_uncopied(connection, partition, [the_range(rows, partition)], 1))


def test_the_copies_of_all_days_take_their_places_at_once(rows: Rows, days: tuple[int, int]) -> None:
    before = standing(rows)
    numbers = [stage(rows, partition) for partition in days]
    assert (standing(rows), [uncopied(rows, partition) for partition in days]) == (before, [0, 0])
    flip(rows)
    assert standing(rows) == numbers
    assert [the_range(rows, partition).content_length for partition in days] == [7, 7]
    assert [rows.load(partition).revision for partition in days] == [1, 1]
    assert rows.sql("SELECT 1 FROM prism_staged_files") == []
    assert rows.value("SELECT state FROM prism_rewrites WHERE prism_partition_id IS NULL") == "done"


def test_a_copy_that_is_made_again_takes_the_place_of_the_first(rows: Rows, days: tuple[int, int]) -> None:
    stage(rows, days[0])
    number = stage(rows, days[0])
    flip(rows)
    assert standing(rows)[0] == number


def test_a_copy_with_other_rows_is_refused(rows: Rows, days: tuple[int, int]) -> None:
    with pytest.raises(InvariantBroken, match="not the same rows"):
        stage(rows, days[0], row_count=1)


def test_a_copy_of_an_object_that_another_one_has_replaced_takes_no_place(rows: Rows, days: tuple[int, int]) -> None:
    copied = the_range(rows, days[0])
    stage(rows, days[0])
    number = adopt(rows, days[0])
    assert uncopied(rows, days[0]) == 1
    stage(rows, days[0], copied)
    assert uncopied(rows, days[0]) == 1, "what comes too late is not staged"
    flip(rows)
    assert standing(rows)[0] == number


def test_a_widening_commits_all_days_or_none(rows: Rows, days: tuple[int, int]) -> None:
    before = standing(rows)
    for partition in days:
        stage(rows, partition)
    with rows.database.begin() as connection:
        staged = staged_files.load_replacements(connection, KEYS, widening(rows))
    number = adopt(rows, days[1])
    with pytest.raises(StaleRewrite), rows.database.begin() as connection:
        commit_staged(connection, widening(rows), staged, Certificate.SAME_ROWS)
    assert standing(rows) == [before[0], number]


def test_a_widening_that_was_given_up_commits_nothing(rows: Rows, days: tuple[int, int]) -> None:
    before = standing(rows)
    stage(rows, days[0])
    former = widening(rows)
    with rows.database.begin() as connection:
        staged = staged_files.load_replacements(connection, KEYS, former)
        widenings.drop(connection, former.table_id)
        assert widenings.find(connection, former.table_id) is None
    with pytest.raises(LeaseLost), rows.database.begin() as connection:
        commit_staged(connection, former, staged, Certificate.SAME_ROWS)
    assert (standing(rows), rows.sql("SELECT 1 FROM prism_staged_files")) == (before, [])


def test_a_copy_takes_over_for_which_erasures_its_object_was_searched(rows: Rows, days: tuple[int, int]) -> None:
    stage(rows, days[0])
    rows.sql("UPDATE prism_merge_ranges SET erasure_id = 5 WHERE prism_partition_id = :id", id=days[0])
    flip(rows)
    assert the_range(rows, days[0]).erasure_id == 5


def test_a_rewrite_of_lines_leaves_the_widening_of_its_table(rows: Rows, days: tuple[int, int]) -> None:
    known = widening(rows)
    with rows.database.begin() as connection:
        rewrites.begin_of_table(connection, known.table_id, RewriteKind.ERASE, definition_version=1, worker="w")
    assert widening(rows) == known
