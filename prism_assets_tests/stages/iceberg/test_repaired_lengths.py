"""I-H8: a repair changes the length of an object under its key.

The head is corrected, and no snapshot names the old one.
"""

from __future__ import annotations

import pytest

from prism_assets.stages.repair.run import run_repair
from prism_assets_tests import snapshots
from prism_assets_tests.stages.iceberg.clients import a_client
from prism_assets_tests.stages.iceberg.days import (
    AFTER,
    LATER,
    NOON,
    TABLE,
    attempt,
    fails_at,
    head,
    is_sound,
    reasons,
    streamed,
)
from prism_assets_tests.stages.test_repair import as_of_another_version, small_keys
from prism_assets_tests.world import World


def faults(world: World) -> list[str]:
    return list(snapshots.faults(world.iceberg_table(), world.root / "buckets"))


def repaired(world: World, now: str) -> list[int]:
    """Publishes three objects one by one, then changes their lengths by a repair. Returns the ids of their rows."""
    world.apply(TABLE)
    ids = [*streamed(world), *streamed(world), *streamed(world)]
    as_of_another_version(world)
    world.iceberg(NOON)
    ids += streamed(world)
    world.iceberg(NOON)
    if now != NOON:
        world.catalog(now)
    world.context.stores.delete("lake", small_keys(world)[:2])
    assert run_repair(world.context).repaired == 2
    assert faults(world) != [], "the head says lengths that are no longer so, and so does the snapshot before"
    return ids


@pytest.mark.parametrize("now", [NOON, AFTER], ids=["open", "closed"])
def test_the_head_says_the_new_length_and_older_snapshots_are_gone_with_the_same_commit(world: World, now: str) -> None:
    ids = repaired(world, now)
    commit = attempt(world, now).commit
    assert commit is not None
    assert (commit.operation, commit.files_in, commit.files_out, commit.expired) == ("replace", 2, 2, 2)
    assert [item.snapshot_id for item in world.iceberg_table().metadata.snapshots] == [commit.snapshot_id]
    assert is_sound(world, ids)
    assert not attempt(world, now).changed


def test_snapshots_that_say_an_old_length_are_gone_where_a_merge_came_before_the_commit(world: World) -> None:
    ids = repaired(world, AFTER)
    world.merge(LATER, everything=True)
    attempt(world, LATER)
    assert is_sound(world, ids)
    assert not attempt(world, LATER).changed


def test_a_tagged_snapshot_stays_whatever_it_says(world: World) -> None:
    """A person asked for it. Its files exist, though not every reader can read them."""
    ids = repaired(world, NOON)
    tagged = head(world).snapshot_id
    with a_client(world) as (_, table):
        table.manage_snapshots().create_tag(tagged, "kept").commit()
    attempt(world)
    assert [item.snapshot_id for item in world.iceberg_table().metadata.snapshots] == [tagged, head(world).snapshot_id]
    assert world.iceberg_ids() == ids


@pytest.mark.parametrize("point", ["iceberg.before_commit", "iceberg.after_commit", "iceberg.in_record"])
@pytest.mark.parametrize("merged", [False, True], ids=["as it was", "merged"])
def test_a_death_in_that_commit_leaves_nothing_wrong(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, merged: bool
) -> None:
    ids = repaired(world, AFTER)
    if merged:
        world.merge(LATER, everything=True)
    fails_at(monkeypatch, point)
    attempt(world, LATER)
    assert reasons(attempt(world, LATER)) == []
    assert is_sound(world, ids)
    assert not attempt(world, LATER).changed
