"""I-H7: a foreign commit to the table is found, reported once, and reverted by one commit."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from prism_assets.domain.iceberg.snapshots import ACTIVE, FAILED, FOREIGN
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.findings import says
from prism_assets_tests.stages.iceberg.clients import STRANGERS_ID, PausingCatalog, a_client, a_stranger, with_iceberg
from prism_assets_tests.stages.iceberg.days import (
    NOON,
    attempt,
    commits,
    fails_at,
    head,
    is_sound,
    published,
    reasons,
    recorded,
    streamed,
)
from prism_assets_tests.world import World

COMMITS = ("append", "rewrite", "delete")


@pytest.mark.parametrize("act", COMMITS)
def test_a_commit_of_others_is_told_once_and_taken_back_by_the_next_run_in_one_commit(world: World, act: str) -> None:
    ids = published(world)
    a_stranger(world, act)
    assert (world.iceberg_ids() == ids) == (act == "rewrite"), "what readers see unless it is taken back"

    (told,) = reasons(attempt(world))
    assert "somebody else committed to" in told
    assert (recorded(world).state, recorded(world).last_error) == (FOREIGN, told)

    before = len(commits(world))
    report = attempt(world)
    assert (reasons(report), report.restored) == ([], True)
    assert len(commits(world)) == before + 1
    assert recorded(world).state == ACTIVE
    assert is_sound(world, ids)
    assert not attempt(world).changed


@pytest.mark.parametrize("act", COMMITS)
def test_a_commit_of_others_between_load_and_commit_wins_and_is_then_seen(world: World, act: str) -> None:
    ids = published(world)
    ids += streamed(world)
    ours = with_iceberg(world, lambda inner: PausingCatalog(inner, lambda: a_stranger(world, act)))

    (told,) = reasons(attempt(ours))

    assert "somebody else committed to" in told
    assert commits(world)[0].outcome == "refused"
    assert attempt(world).restored
    assert is_sound(world, ids)


def test_a_restored_table_lists_objects_of_ours_alone(world: World) -> None:
    published(world)
    a_stranger(world, "rewrite")
    attempt(world)
    commit = attempt(world).commit
    assert commit is not None
    assert (commit.operation, commit.files_in, commit.files_out) == ("replace", 2, 1)
    assert "/iceberg/" not in str([task.file.file_path for task in world.iceberg_table().scan().plan_files()])


def test_rows_of_days_that_we_do_not_have_are_taken_back(world: World) -> None:
    ids = published(world, 1)
    with a_client(world) as (_, table):
        row = table.scan().to_arrow().to_pylist()[0]
        theirs = [{**row, "id": STRANGERS_ID}, {**row, "id": STRANGERS_ID, "dt": date(2026, 3, 20)}]
        table.append(pa.Table.from_pylist(theirs, schema=table.schema().as_arrow()))
    attempt(world)
    attempt(world)
    assert is_sound(world, ids)


@pytest.mark.parametrize("act", COMMITS)
def test_nothing_is_taken_back_before_a_person_says_so_where_the_file_says_stop(world: World, act: str) -> None:
    ids = published(world)
    world.apply(a_table(iceberg="{on_foreign: stop}", merge="{interval: 0}"))
    a_stranger(world, act)
    theirs = head(world).snapshot_id
    for _ in range(3):
        ids += streamed(world)
        (told,) = reasons(attempt(world))
        assert "`prism iceberg restore log.events`" in told
        assert head(world).snapshot_id == theirs
        (waits,) = says(read_status(world.context, now=utc(NOON))[0].findings, "foreign_commits")
        assert "`prism iceberg restore log.events`" in waits
    assert [item.kind for item in run_doctor(world.context).findings] == ["foreign_commits"]

    assert attempt(world, restore=True).restored

    assert is_sound(world, ids)
    assert reasons(attempt(world)) == []
    assert says(read_status(world.context, now=utc(NOON))[0].findings, "foreign_commits") == []
    assert run_doctor(world.context).is_clean


@pytest.mark.parametrize("point", ["iceberg.after_commit", "iceberg.in_record"])
def test_what_was_taken_back_is_not_told_again_after_a_death_before_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ids = published(world)
    world.apply(a_table(iceberg="{on_foreign: stop}", merge="{interval: 0}"))
    a_stranger(world, "delete")
    assert reasons(attempt(world)) != []
    fails_at(monkeypatch, point)
    attempt(world, restore=True)

    assert reasons(attempt(world)) == []
    assert recorded(world).state == ACTIVE
    assert is_sound(world, ids)


def test_snapshots_that_others_expire_are_not_missed(world: World) -> None:
    ids = published(world, 3)
    a_stranger(world, "expire")
    assert len(world.iceberg_table().metadata.snapshots) == 1
    ids += streamed(world)
    assert reasons(attempt(world)) == []
    assert is_sound(world, ids)


def test_snapshots_that_others_expire_while_we_do_are_no_failure(world: World) -> None:
    ids = published(world, 3)
    ids += streamed(world)
    ours = with_iceberg(world, lambda inner: PausingCatalog(inner, lambda: a_stranger(world, "expire")))
    report = attempt(ours, "2026-03-03T00:00")
    assert (reasons(report), commits(world)[1].outcome) == ([], "refused")
    assert is_sound(world, ids)


@pytest.mark.parametrize("act", ["drop", "rename"])
@pytest.mark.parametrize("when", ["before the load", "between load and commit"])
def test_a_table_that_others_take_out_of_the_catalog_is_named_again_by_the_next_run(
    world: World, act: str, when: str
) -> None:
    ids = published(world)
    uuid, known = world.iceberg_table().metadata.table_uuid, history(world)
    ids += streamed(world)
    if when == "before the load":
        a_stranger(world, act)
        report = attempt(world)
    else:
        ours = with_iceberg(world, lambda inner: PausingCatalog(inner, lambda: a_stranger(world, act)))
        report = attempt(ours)

    assert (reasons(report), report.created) == ([], True)
    assert world.iceberg_table().metadata.table_uuid == uuid
    assert history(world)[: len(known)] == known
    assert is_sound(world, ids)


def history(world: World) -> list[int]:
    return [item.snapshot_id for item in world.iceberg_table().metadata.snapshot_log]


@pytest.mark.parametrize("when", ["before the load", "between load and commit"])
def test_another_table_under_our_name_stops_everything(world: World, when: str) -> None:
    published(world)
    streamed(world)
    ours = world
    if when == "before the load":
        a_stranger(world, "recreate")
    else:
        ours = with_iceberg(world, lambda inner: PausingCatalog(inner, lambda: a_stranger(world, "recreate")))
    for _ in range(2):
        (told,) = reasons(attempt(ours, restore=True))
        assert "is not the published one" in told
        assert recorded(world).state == FAILED
    assert world.iceberg_table().current_snapshot() is None, "theirs is as it was"
