"""PostgreSQL restored to before an erasure: its rows never return, neither before nor while a person repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.erasures.rules import ErasureRule, digest_of
from prism_assets.domain.errors import DefinitionError, ErasureMissing, StoreUnavailable, WrongUse
from prism_assets.domain.findings import Acts
from prism_assets.domain.names import TableName
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.rules import withdraw_erasure
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.erasure_records import leave_out_held
from prism_assets.stages.findings.erasures import ERASURES_PROVED
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.quarantine import quarantined_lines
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.run import lasting_errors, run_until_idle
from prism_assets.stages.status import read_status
from prism_assets_tests.backups import a_backup
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.requests import Requests, a_join_table, front
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.world import World

NOON, ONE, TWO = "2026-03-01T12:00", "2026-03-01T13:00", "2026-03-01T14:00"
NIGHT, LATER, LAST = "2026-03-02T01:00", "2026-03-02T02:00", "2026-03-02T05:00"
DAY = utc(NOON).date()
TABLE = "log.events"
LACKS = "PostgreSQL lacks the erasure of"
Restore = Callable[[], World]


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


@pytest.fixture
def ids(world: World) -> list[int]:
    """Returns the ids that readers see on a closed day."""
    world.apply(a_table(merge="{interval: 0}"))
    rows = some_rows(40, utc(NOON))
    world.drop([*rows, rows[2] | {"time": None}])  # the last line is set aside
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(NIGHT)
    return sorted(row["id"] for row in rows)


def erase(world: World, gone: int, *, until_proved: bool) -> str:
    """Erases a row; returns the HMAC of the erasure."""
    report = run_erase(world.context, TABLE, f"id = {gone}", rows=1)
    assert report.errors == ()
    world.catalog(ONE)
    if until_proved:
        hours_pass(world, 90)
        for _ in range(2):
            world.catalog(ONE)
            future = datetime.now(timezone.utc) + timedelta(days=10)
            continue_erasures(world.context, now=future, forced=True)
    assert gone not in world.ids()
    (erasure,) = run_erase(world.context, TABLE, f"id = {gone}").erasures
    assert not until_proved or erasure.state == "proved"
    return erasure.digest


def run_everything(world: World, now: str) -> list[str]:
    """Runs all commands and all work of Dagster, despite errors. Returns the errors."""
    rest_is_over(world)
    errors = [*world.stream(now).errors, *world.merge(now, everything=True).errors]
    errors += run_repair(world.context).errors
    errors += run_catalog(world.context, now=utc(now), republish=True).errors
    errors += run_catalog(world.context, now=utc(now)).errors
    errors += run_iceberg(world.context, now=utc(now), ignore_pace=True).errors
    for call in (
        lambda: run_rebuild(world.context, TABLE, day=DAY, now=utc(now)),
        lambda: run_replay(world.context, TABLE, now=utc(now)),
    ):
        with pytest.raises(ErasureMissing) as refused:
            call()
        errors.append(str(refused.value))
    return errors


@pytest.mark.parametrize("until_proved", [True, False])
@pytest.mark.parametrize("merged", [False, True])
def test_an_erasure_that_a_restore_took_back_is_asked_for_and_no_row_of_it_comes_back(
    world: World, postgres: PostgresServer, ids: list[int], merged: bool, until_proved: bool
) -> None:
    if merged:
        world.catalog(NIGHT)
        world.merge(NIGHT, everything=True)
        world.catalog(NIGHT)
        world.catalog(NIGHT)
    gone, left = ids[2], [*ids[:2], *ids[3:]]
    with a_backup(postgres, world) as backup:
        digest = erase(world, gone, until_proved=until_proved)
        restored = backup.restore()
        late = some_rows(1, utc(NOON))
        restored.drop(late, name="zzz")

        (finding,) = run_doctor(restored.context, deep=True).findings
        assert finding.kind == "missing_erasure"
        assert digest in str(finding)
        assert "prism erase log.events --where" in str(finding)
        with pytest.raises(ErasureMissing, match=LACKS):
            next(quarantined_lines(restored.context, 1))
        errors = run_everything(restored, LAST)
        assert len(errors) >= 6
        assert all(LACKS in error for error in errors)
        assert restored.ids() == left

        (dry,) = plan_erasure(restored.context, TABLE, f"ID={gone}").notes
        assert "repeats the erasure" in dry
        report = run_erase(restored.context, TABLE, f"ID={gone}", rows=1)
        assert restored.ids() == left
        if merged and until_proved:  # the earlier merged object is gone, and no repair makes one again
            assert report.errors
            return
        assert report.errors == ()
        for now in ("2026-03-02T06:00", "2026-03-02T07:00"):
            rest_is_over(restored)
            assert restored.stream(now).errors == ()
            assert run_repair(restored.context).errors == ()
            assert restored.merge(now, everything=True).errors == ()
            restored.catalog(now)
            assert gone not in restored.ids()
        assert restored.ids() == sorted([*left, late[0]["id"]])
        assert run_doctor(restored.context).findings == ()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a call die at a failpoint; at none with an empty name."""

    def at(point: str) -> None:
        points = failpoints.parse(f"{point}=1*raise(StoreUnavailable)") if point else {}
        monkeypatch.setattr(failpoints, "_POINTS", points)

    return at


def held(world: World) -> set[str]:
    """Returns the tables held because of a missing erasure."""
    names = {str(table.name): True for table in world.context.choose_tables(None)}
    return names.keys() - leave_out_held(world.context, names).keys()


@pytest.mark.parametrize(
    "point", ["erase.in_announce", "erase.after_announce", "erase.after_record", "erase.in_rule", "erase.after_rule"]
)
def test_an_erasure_that_died_on_its_way_into_force_goes_on_by_itself(
    world: World, ids: list[int], failing: Callable[[str], None], point: str
) -> None:
    failing(point)
    with pytest.raises(StoreUnavailable):
        run_erase(world.context, TABLE, f"id = {ids[2]}")
    if point == "erase.in_announce":  # nothing is stored, and the person repeats it
        assert run_erase(world.context, TABLE, f"id = {ids[2]}").errors == ()
    report = continue_erasures(world.context)
    assert report.errors == ()
    world.catalog(NIGHT)
    assert world.ids() == [*ids[:2], *ids[3:]]
    assert held(world) == set()


def test_a_batch_puts_in_force_what_is_recorded_and_was_only_announced(
    world: World, ids: list[int], failing: Callable[[str], None]
) -> None:
    failing("erase.after_record")
    with pytest.raises(StoreUnavailable):
        run_erase(world.context, TABLE, f"id = {ids[2]} or id = {ids[-1] + 1}")
    late = some_rows(2, utc(NOON))
    late[0]["id"] = ids[-1] + 1
    world.drop(late)
    assert world.stream(ONE).errors == ()
    world.catalog(NIGHT)
    assert late[0]["id"] not in world.ids()
    assert late[1]["id"] in world.ids()


def test_a_restore_to_the_moment_before_a_rule_is_in_force_puts_it_in_force(
    world: World, postgres: PostgresServer, ids: list[int], failing: Callable[[str], None]
) -> None:
    failing("erase.after_announce")
    with pytest.raises(StoreUnavailable):
        run_erase(world.context, TABLE, f"id = {ids[2]}")
    with a_backup(postgres, world) as backup:
        continue_erasures(world.context)
        restored = backup.restore()
        assert restored.merge(ONE, everything=True).errors == ()
        assert continue_erasures(restored.context).errors == ()
        restored.catalog(ONE)
        assert restored.ids() == [*ids[:2], *ids[3:]]
        assert held(restored) == set()


def test_a_table_goes_on_when_all_its_lost_erasures_are_repeated_and_others_meanwhile(
    world: World, postgres: PostgresServer, ids: list[int]
) -> None:
    world.apply(a_table("log.other"))
    with a_backup(postgres, world) as backup:
        for gone in ids[:2]:
            assert run_erase(world.context, TABLE, f"id = {gone}").errors == ()
        world.catalog(NIGHT)
        assert world.ids() == ids[2:]
        restored = backup.restore()
        other = some_rows(3, utc(NOON))
        restored.drop(other, stream="other")
        assert all(LACKS in error for error in restored.stream(ONE).errors)
        run_catalog(restored.context, now=utc(ONE))
        assert restored.ids("log.other") == sorted(row["id"] for row in other)

        (another,) = run_erase(restored.context, TABLE, f"id = {ids[4]}").errors
        assert another.count(LACKS) == 2
        (still,) = run_erase(restored.context, TABLE, f"id = {ids[0]}").errors
        assert still.count(LACKS) == 1
        assert restored.ids() == ids[2:]
        assert run_erase(restored.context, TABLE, f"id = {ids[1]}").errors == ()
        restored.catalog(NIGHT)
        assert restored.ids() == [*ids[2:4], *ids[5:]]
        assert held(restored) == set()
        assert restored.stream(ONE).errors == ()


def test_a_repeated_erasure_closes_the_days_that_a_restore_has_opened_again(
    world: World, postgres: PostgresServer
) -> None:
    """No catalog run closes them before: it would send readers to the live prefix, where the rows are."""
    world.apply(a_table(merge="{interval: 0}"))
    rows = some_rows(40, utc(NOON))
    world.drop(rows)
    world.stream(NOON)
    world.catalog(NOON)
    gone, *left = sorted(row["id"] for row in rows)
    with a_backup(postgres, world) as backup:
        world.catalog(NIGHT)
        erase(world, gone, until_proved=False)
        restored = backup.restore()
        assert all(LACKS in error for error in run_everything(restored, LAST))
        assert run_erase(restored.context, TABLE, f"id = {gone}").errors == ()
        assert held(restored) == set()
        assert restored.ids() == left
        restored.catalog(LAST)
        assert restored.ids() == left
        assert run_doctor(restored.context).findings == ()


def test_whoever_looks_is_told_of_an_erasure_that_postgresql_lacks(
    world: World, postgres: PostgresServer, ids: list[int]
) -> None:
    with a_backup(postgres, world) as backup:
        digest = erase(world, ids[2], until_proved=False)
        restored = backup.restore()
        turns = run_until_idle(restored.context, clock=lambda: utc(LAST))
        assert all(LACKS in error for error in lasting_errors(restored.context, turns))
        (left,) = read_findings(restored.context, None, now=utc(LAST))
        assert left.acts is Acts.PERSON
        assert digest in left.text
        (status,) = read_status(restored.context, now=utc(LAST))
        assert status.findings == (left,)
        (outcome,) = run_checks(restored.context, [ERASURES_PROVED], names=[TABLE], limits={}, now=utc(LAST))
        assert not outcome.passed
        assert LACKS in outcome.sentence
        assert leave_out_held(restored.context, {TABLE: 1, "log.other": 2}) == {"log.other": 2}


def test_a_file_changes_no_table_that_lacks_an_erasure_but_to_let_it_be_repeated(
    world: World, postgres: PostgresServer, ids: list[int]
) -> None:
    marked = a_table(merge="{interval: 0}", columns=["{name: mark, type: bigint}"])
    with a_backup(postgres, world) as backup:
        erase(world, ids[2], until_proved=False)
        restored = backup.restore()
        with pytest.raises(DefinitionError, match=LACKS):
            restored.apply(marked)
        (problem,) = apply_sound(restored.context, restored.settings.tables_dir, utc(ONE)).problems
        assert LACKS in problem
        assert restored.context.choose_tables([TABLE])[0].version == 1
        run_erase(restored.context, TABLE, f"id = {ids[2]}")
        restored.apply(marked)
        assert restored.context.choose_tables([TABLE])[0].version == 2


def test_a_file_brings_back_the_column_that_a_lost_erasure_names(
    world: World, postgres: PostgresServer, ids: list[int]
) -> None:
    marked = a_table(merge="{interval: 0}", columns=["{name: mark, type: bigint}"])
    with a_backup(postgres, world) as backup:
        world.apply(marked)
        assert run_erase(world.context, TABLE, f"mark = 7 AND id = {ids[2]}").errors == ()
        restored = backup.restore()
        assert any(LACKS in notice for notice in restored.apply(marked).notices)
        assert run_erase(restored.context, TABLE, f"mark = 7 and id = {ids[2]}").errors == ()
        assert held(restored) == set()


def test_a_person_withdraws_an_erasure_that_is_not_to_be_repeated(
    world: World, postgres: PostgresServer, ids: list[int], failing: Callable[[str], None]
) -> None:
    with a_backup(postgres, world) as backup:
        digest = erase(world, ids[2], until_proved=False)
        restored = backup.restore()
        for wrong in (digest[:4], "0" * 64):
            with pytest.raises(WrongUse, match="nothing was withdrawn"):
                withdraw_erasure(restored.context, TABLE, wrong)
        failing("erase.after_delete_record")
        with pytest.raises(StoreUnavailable):
            withdraw_erasure(restored.context, TABLE, digest[:12])
        assert held(restored) == {TABLE}
        assert withdraw_erasure(restored.context, TABLE, digest[:12]).record.digest == digest
        assert held(restored) == set()
        assert restored.stream(ONE).errors == ()
    with pytest.raises(WrongUse, match="there are: none"):
        withdraw_erasure(world.context, TABLE, digest)


def test_a_lost_erasure_of_a_join_table_holds_both_its_tables(world: World, postgres: PostgresServer) -> None:
    world.apply(a_join_table(dirty=0.9))
    requests = Requests(world)
    stay = [("front", front(f"r{number}", NOON, "cart")) for number in range(30)]
    requests.arrive([("front", front("gone", NOON, "home")), *stay], NOON)
    requests.show(NOON)
    left = [row for row in requests.seen() if row[0] != "gone"]
    with a_backup(postgres, world) as backup:
        where = "request_id = 'gone'"
        assert run_erase(world.context, "log.request", where).errors == ()
        world.catalog(ONE)
        assert requests.seen() == left
        restored = backup.restore()
        again = Requests(restored)
        restored.drop([front("gone", NOON, "pay")], stream="front", name="zzz")
        errors = [
            *restored.stream(ONE).errors,
            *run_fold(restored.context, now=utc(ONE), ignore_pace=True).errors,
            *run_catalog(restored.context, now=utc(ONE)).errors,
            *restored.merge(ONE, everything=True).errors,
        ]
        assert len(errors) >= 5
        assert all(LACKS in error for error in errors)
        assert held(restored) == {"log.request", "log.request_changes"}
        assert again.seen() == left
        rest_is_over(restored)
        assert run_erase(restored.context, "log.request_changes", where).errors == ()
        assert restored.stream(TWO).errors == ()
        again.show(TWO)
        assert again.seen() == left == again.wanted()


def test_an_erasure_is_proved_beside_a_merged_object_that_a_restore_lost(
    world: World, postgres: PostgresServer, ids: list[int]
) -> None:
    """The lost object has a number that the restored database gives to another rewrite."""
    with a_backup(postgres, world) as backup:
        late = world.drop(some_rows(5, utc(NOON)))
        world.stream(NIGHT)
        world.merge(NIGHT, everything=True)
        (lost,) = (key for key in keys(world, "/merged/") if key.endswith(".parquet"))
        (world.root / "buckets" / "staging" / late).unlink()
        restored = backup.restore()
        assert run_repair(restored.context).errors == ()
        restored.merge(LATER, everything=True)
        restored.catalog(LATER)
        assert lost in keys(restored), "it ends beyond the chain"
        (erasure,) = run_erase(restored.context, TABLE, f"id = {ids[2]}", rows=1).erasures
        restored.catalog(LAST)
        future = datetime.now(timezone.utc) + timedelta(days=10)
        (erasure,) = continue_erasures(restored.context, now=future, forced=True).erasures
        assert (erasure.state, erasure.rows_erased) == ("proved", 1)
        assert lost not in keys(restored)
        assert restored.ids() == [*ids[:2], *ids[3:]]


def test_the_record_of_an_erasure_tells_nothing_of_whom_and_outlives_its_table(world: World, ids: list[int]) -> None:
    erase(world, ids[2], until_proved=True)
    folder = world.root / "buckets" / "lake" / "prism-erasures"
    (record,) = folder.iterdir()
    assert f"{ids[2]}" not in record.read_text().split('"digest"')[0]
    assert '"id"' in record.read_text()
    world.apply(a_table(merge="{interval: 0}") + "retired: true\n")
    (world.settings.tables_dir / "events.yaml").unlink()
    run_drop(world.context, TABLE, confirm=TABLE, now=datetime.now(timezone.utc) + timedelta(days=40))
    hours_pass(world, 90)
    gc(world)
    assert record.exists()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("user_id = 42", "USER_ID=42", True),
        ("a <= -1", "a<=-1", True),
        ("a = 'X  y'", "a = 'x y'", False),
        ("a = $$X$$", "a = $$x$$", False),
        ("a = 1 -- or\n and b", "a = 1 -- or and b", False),
        ("a - -1 = b", "a -- 1 = b", False),
    ],
)
def test_space_and_case_between_quotes_alone_make_another_erasure(one: str, other: str, same: bool) -> None:
    name = TableName("log", "events")
    digests = {digest_of(name, ErasureRule(erasure_id=0, predicate=text, columns=()), "key") for text in (one, other)}
    assert len(digests) == (1 if same else 2)
