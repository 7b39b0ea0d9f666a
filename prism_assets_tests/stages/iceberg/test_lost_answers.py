"""I-H3, I-H4, I-H5: lost, repeated or false answers of the catalog. A load of the table shows the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import small_objects
from prism_assets.objectstore.stores import Stores
from prism_assets_tests import snapshots
from prism_assets_tests.stages.iceberg.clients import (
    ForgetfulCatalog,
    LosingCatalog,
    PausingCatalog,
    a_client,
    with_iceberg,
)
from prism_assets_tests.stages.iceberg.days import (
    AFTER,
    NOON,
    attempt,
    commits,
    head,
    is_sound,
    published,
    reasons,
    recorded,
    streamed,
)
from prism_assets_tests.world import World

WAYS: dict[str, Callable[[Catalog], Any]] = {
    "not applied": lambda inner: LosingCatalog(inner, applied=False),
    "applied": lambda inner: LosingCatalog(inner),
    "applied and resent": lambda inner: LosingCatalog(inner, resent=True),
}
CHANGES = ("append", "replace")


def with_a_change(world: World, change: str) -> tuple[list[int], str]:
    """Returns a published table with a due commit, the expected ids, and the time."""
    ids = published(world)
    if change == "append":
        return ids + streamed(world), NOON
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    return ids, AFTER


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_a_lost_answer_leaves_each_row_once(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str, way: str
) -> None:
    ids, now = with_a_change(world, change)
    deleted: list[object] = []
    monkeypatch.setattr(Stores, "delete", lambda _stores, bucket, keys: deleted.append((bucket, keys)))
    ours = with_iceberg(world, WAYS[way])

    first = attempt(ours, now)

    if way == "not applied":
        (told,) = reasons(first)
        assert "could not commit to the Iceberg table of log.events: the answer was lost" in told
        assert first.problems[0].transient
        assert attempt(ours, now).commit is not None
    else:
        assert reasons(first) == []
        assert first.commit is not None
        assert first.commit.outcome == "settled"
    assert commits(world)[0].outcome == ("committed" if way == "not applied" else "settled")
    assert recorded(world).snapshot_id == head(world).snapshot_id
    assert is_sound(world, ids)
    assert not attempt(world, now).changed
    assert deleted == []


def test_a_transaction_of_the_library_makes_the_table_unreadable_where_a_request_came_twice(world: World) -> None:
    """The reason why we avoid it: it treats its own commit as a leftover, and deletes the head."""
    published(world, 1)
    with a_client(world) as (catalog, table):
        table.catalog = LosingCatalog(catalog, resent=True)  # type: ignore[assignment]
        with pytest.raises(CommitFailedException):
            table.append(table.scan().to_arrow())
        with pytest.raises(FileNotFoundError):
            catalog.load_table(table.name()).scan().to_arrow()


def test_an_append_that_is_blindly_repeated_lists_a_path_twice_and_ours_lists_it_once(world: World) -> None:
    ids = published(world)
    ids += streamed(world)
    attempt(with_iceberg(world, WAYS["applied"]))
    attempt(world)
    assert is_sound(world, ids)

    with a_client(world) as (_, table):
        before = snapshots.listed(table)
        files = [task.file for task in table.scan().plan_files()]
        with table.transaction() as repeated, repeated.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)
        assert snapshots.listed(table.refresh()) == before + before
    assert Counter(world.iceberg_ids()) == Counter(ids + ids)

    attempt(world)
    attempt(world)
    assert world.iceberg_ids() == ids


def test_a_yes_that_is_not_true_is_noticed_by_reading_back(world: World) -> None:
    ids = published(world)
    ids += streamed(world)
    ours = with_iceberg(world, lambda inner: ForgetfulCatalog(inner))
    assert reasons(attempt(ours)) == []
    assert [item.outcome for item in commits(world)[:2]] == ["committed", "refused"]
    assert "does not show it" in str(commits(world)[1].message)
    assert is_sound(world, ids)


def test_a_yes_that_is_not_true_is_noticed_where_the_commit_makes_no_snapshot(world: World) -> None:
    ids, now = with_a_change(world, "replace")
    attempt(world, now)
    _repair_a_merged_object(world)
    ours = with_iceberg(world, lambda inner: ForgetfulCatalog(inner))
    assert reasons(attempt(ours, now)) == []
    assert [item.outcome for item in commits(world)[:2]] == ["committed", "refused"]
    with a_client(world) as (_, table):
        assert [item.snapshot_id for item in table.metadata.snapshots] == [head(world).snapshot_id]
    assert is_sound(world, ids)


def _repair_a_merged_object(world: World) -> None:
    """Changes its length.

    Snapshots from before the merge state the old length, and the head does not list the object.
    """
    (table,) = world.context.choose_tables(["log.events"])
    with world.context.database.begin() as connection:
        (partition, *_) = partitions.load_table_partitions(connection, table.table_id)
        partitions.lock_partition(connection, partition.partition_id)
        (first, *_) = small_objects.load_above(connection, world.context.lake.keys(table), partition.partition_id, 0)
        assert small_objects.set_length(connection, first, first.content_length + 1)
        partitions.raise_revisions(connection, [partition.partition_id])
        partitions.count_repair(connection, partition.partition_id)


def test_a_catalog_that_never_does_what_it_says_is_told_and_nothing_is_recorded(world: World) -> None:
    published(world)
    before = recorded(world)
    streamed(world)
    ours = with_iceberg(world, lambda inner: ForgetfulCatalog(inner, left=1_000))
    (told,) = reasons(attempt(ours))
    assert "the catalog took the commit and does not show it" in told
    assert recorded(world) == before


@dataclass
class SlowCatalog(LosingCatalog):
    """Keeps a requested commit, to apply it later."""

    kept: list[tuple[Any, ...]] = field(default_factory=list)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> Any:
        self.kept.append((table, requirements, updates))
        return super().commit_table(table, requirements, updates)


def given_up(world: World) -> tuple[Any, ...]:
    """A commit whose sender gave up before it took effect."""
    kept: list[tuple[Any, ...]] = []
    attempt(with_iceberg(world, lambda inner: SlowCatalog(inner, applied=False, kept=kept)))
    return kept[0]


def test_a_commit_that_lands_when_its_sender_has_given_up_is_refused_by_the_catalog(world: World) -> None:
    """The head is no longer the one the commit was made for."""
    ids = published(world)
    ids += streamed(world)
    late = given_up(world)
    attempt(world)
    with pytest.raises(CommitFailedException):
        world.context.iceberg.catalog.commit_table(*late)
    assert is_sound(world, ids)


def test_a_commit_that_lands_late_and_first_is_found_by_its_difference(world: World) -> None:
    ids = published(world)
    ids += streamed(world)
    late = given_up(world)
    world.context.iceberg.catalog.commit_table(*late)
    report = attempt(world)
    assert (report.commit, reasons(report)) == (None, [])
    assert recorded(world).snapshot_id == head(world).snapshot_id
    assert is_sound(world, ids)


def test_a_catalog_that_misses_the_table_in_the_middle_of_a_commit_fails_no_other_table(world: World) -> None:
    ids = published(world)
    ids += streamed(world)

    def missing() -> None:
        raise NoSuchTableError("Table does not exist: events")

    ours = with_iceberg(world, lambda inner: PausingCatalog(inner, missing))
    assert reasons(attempt(ours)) == []
    assert is_sound(world, ids)
