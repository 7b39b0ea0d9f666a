"""The commit of a rewrite: its four rules, and the chain of ranges that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from prism_assets.domain.errors import InvariantBroken, LeaseLost, StaleRewrite
from prism_assets.domain.files.data_file import MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Certificate, Replacement, Rewrite, RewriteKind
from prism_assets.domain.merges.plan import PlannedRange
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.rewrite.commit import commit_rewrite
from prism_assets_tests.metadata.rows import (
    KEYS,
    Rows,
    a_planned_range,
    begin_rewrite,
    merge_range,
    written_of,
)


@pytest.fixture
def partition(rows: Rows) -> int:
    """A day of five small objects."""
    table = rows.table()
    made = rows.partition(table)
    rows.small(table, 5)
    return made


def objects(rows: Rows, partition: int) -> list[SmallObject]:
    with rows.database.begin() as connection:
        return small_objects.load_above(connection, KEYS, partition, 0)


def chain(rows: Rows, partition: int) -> list[MergedRange]:
    with rows.database.begin() as connection:
        return merge_ranges.load_chain(connection, KEYS, partition)


def commit_planned(rows: Rows, rewrite: Rewrite, planned: PlannedRange) -> None:
    """Commits a range as a merge does."""
    with rows.database.begin() as connection:
        partitions.lock_partition(connection, rewrite.partition_id)
        chosen = [planned.replacement(written_of(planned, rewrite))]
        commit_rewrite(connection, rewrite, chosen, Certificate.SAME_ROWS)


def merge(rows: Rows, partition: int, first: int, last: int, extends: MergedRange | None = None) -> None:
    """Merges the small objects of a day from one place up to another."""
    found = objects(rows, partition)[first:last]
    lower = chain(rows, partition)[-1].upper_bound if chain(rows, partition) else 0
    with rows.database.begin() as connection:
        merge_range(connection, partition, a_planned_range(found, extends=extends, lower=lower))


def test_a_first_range_brings_its_sentinel(rows: Rows, partition: int) -> None:
    merge(rows, partition, 0, 5)
    bounds = rows.sql("SELECT lower_bound, upper_bound FROM prism_merge_ranges ORDER BY upper_bound")
    assert bounds == [(None, 0), (0, 5)]


def test_an_extended_range_moves_its_upper_bound(rows: Rows, partition: int) -> None:
    merge(rows, partition, 0, 2)
    (old,) = chain(rows, partition)
    merge(rows, partition, 2, 4, extends=old)
    (new,) = chain(rows, partition)
    assert (new.lower_bound, new.upper_bound, new.row_count) == (0, 4, 40)
    assert new.rewrite_id > old.rewrite_id


def test_the_catalog_is_asked_for_new_bounds_and_told_of_other_objects_with_old_ones(
    rows: Rows, partition: int
) -> None:
    merge(rows, partition, 0, 2)
    merged = rows.load(partition)
    assert (merged.desired_version, merged.revision) == (2, 0)
    (old,) = chain(rows, partition)
    replace_range(rows, partition, old)
    rewritten = rows.load(partition)
    assert (rewritten.desired_version, rewritten.revision) == (2, 1)


def replace_range(rows: Rows, partition: int, before: MergedRange, **more: Any) -> None:
    """Puts an object with the same bounds in the place of a range."""
    replace_ranges(rows, partition, [before], **more)


def replace_ranges(rows: Rows, partition: int, before: Sequence[MergedRange], **more: Any) -> None:
    """Puts objects with the same bounds in the place of ranges."""
    with rows.database.begin() as connection:
        rewrite = begin_rewrite(connection, partition, RewriteKind.RENAME)
        facts = {"rewrite_id": rewrite.rewrite_id, **more}
        chosen = [Replacement.in_place_of(item, replace(item, **facts)) for item in before]
        commit_rewrite(connection, rewrite, chosen, Certificate.SAME_ROWS)


def test_a_merged_object_with_other_rows_than_its_inputs_is_refused(rows: Rows, partition: int) -> None:
    planned = a_planned_range(objects(rows, partition)[:1])
    with (
        pytest.raises(InvariantBroken, match="holds 9 rows, and not the same rows"),
        rows.database.begin() as connection,
    ):
        merge_range(connection, partition, planned, row_count=9)
    assert chain(rows, partition) == []


def test_an_object_with_other_values_than_its_inputs_is_refused(rows: Rows, partition: int) -> None:
    merge(rows, partition, 0, 2)
    (before,) = chain(rows, partition)
    with pytest.raises(InvariantBroken, match="not the same rows"):
        replace_range(rows, partition, before, fingerprint=before.fingerprint + 1)
    assert chain(rows, partition) == [before]


def test_a_rewrite_that_was_dropped_commits_nothing(rows: Rows, partition: int) -> None:
    planned = a_planned_range(objects(rows, partition))
    with rows.database.begin() as connection:
        rewrite = begin_rewrite(connection, partition)
        rewrites.drop(connection, rewrite.rewrite_id)
    with pytest.raises(LeaseLost, match="ended this rewrite"):
        commit_planned(rows, rewrite, planned)
    assert chain(rows, partition) == []


def test_a_rewrite_whose_place_holds_another_object_by_now_is_stale(rows: Rows, partition: int) -> None:
    merge(rows, partition, 0, 2)
    (before,) = chain(rows, partition)
    replace_range(rows, partition, before)
    (current,) = chain(rows, partition)
    with pytest.raises(StaleRewrite, match="rewritten meanwhile"):
        replace_range(rows, partition, before)
    assert chain(rows, partition) == [current]


def test_a_range_is_not_extended_over_small_objects_that_were_not_read(rows: Rows, partition: int) -> None:
    one, _, other, *_ = objects(rows, partition)
    with pytest.raises(StaleRewrite, match="between those that were read"), rows.database.begin() as connection:
        merge_range(connection, partition, a_planned_range([one, other]))
    assert chain(rows, partition) == []


def test_all_objects_of_a_rewrite_take_their_places_or_none_does(rows: Rows, partition: int) -> None:
    merge(rows, partition, 0, 2)
    merge(rows, partition, 2, 4)
    first, second = chain(rows, partition)
    replace_range(rows, partition, second)
    _, current = chain(rows, partition)
    with pytest.raises(StaleRewrite):
        replace_ranges(rows, partition, [first, second])
    assert chain(rows, partition) == [first, current]


def test_a_rewrite_of_an_older_erasure_is_stale(rows: Rows, partition: int) -> None:
    planned = a_planned_range(objects(rows, partition))
    with rows.database.begin() as connection:
        rewrite = begin_rewrite(connection, partition)
    rows.sql(
        'INSERT INTO prism_erasures (prism_table_id, predicate, columns, "values", secrets, digest, after_batch_id, '
        "state, create_time) SELECT prism_table_id, 'id = 1', '[]', '[]', '{}', 'd', 0, 'rewriting', now() "
        "FROM prism_tables"
    )
    with pytest.raises(StaleRewrite, match="an erasure of the table began meanwhile"):
        commit_planned(rows, rewrite, planned)


def test_a_rewrite_can_be_committed_once(rows: Rows, partition: int) -> None:
    planned = a_planned_range(objects(rows, partition))
    with rows.database.begin() as connection:
        rewrite = begin_rewrite(connection, partition)
    commit_planned(rows, rewrite, planned)
    with pytest.raises(LeaseLost, match="ended this rewrite"):
        commit_planned(rows, rewrite, planned)
    assert len(chain(rows, partition)) == 1
