"""Garbage collection: which objects go, when, and which stay during any concurrent work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.errors import AccessDenied, CatalogUnavailable, InvariantBroken, WrongLake, WrongUse
from prism_assets.domain.files.garbage import Reason
from prism_assets.domain.files.keys import MergedObjectKey, marker_key
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.engine.base import Engine
from prism_assets.metadata.files import gc_log
from prism_assets.objectstore.stores import Stores
from prism_assets.reading.lake_reader import ReadPartition, path_of
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.context import StageContext
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.gc import plan as plan_module
from prism_assets.stages.gc import run as run_module
from prism_assets.stages.gc.plan import Horizon
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import counts, deleted, gc, hours_pass, keys
from prism_assets_tests.stages.engines import PausingEngine, another_worker, expire_leases
from prism_assets_tests.stages.test_checks import ALL
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"
LATER = "2026-03-08T12:00"
A_LONG_TIME = 100.0
MERGE = "{interval: 0, target_bytes: 100000}"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run, however old the days are."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, quarantine_days=36_500) as made:
        yield made


def arrive(world: World, now: str = NOON, rows: int = 4, broken: int = 0) -> None:
    world.drop([], body=as_lines(some_rows(rows, utc(NOON))) + b"broken\n" * broken)
    world.stream(now)


def open_day(world: World, objects: int = 3) -> None:
    world.apply(a_table(merge=MERGE))
    for _ in range(objects):
        arrive(world)
    world.catalog(NOON)


def closed_day(world: World) -> None:
    open_day(world)
    world.catalog(AFTER)


def switched_day(world: World) -> None:
    closed_day(world)
    world.merge(AFTER)
    world.catalog(AFTER)


def late_rows_are_merged(world: World) -> None:
    """Extends the only range with late rows and publishes a new manifest."""
    arrive(world, LATER)
    world.catalog(LATER)
    world.merge(LATER)
    world.catalog(LATER)


def is_quiet(world: World) -> bool:
    """Whether doctor, repair and checks miss nothing."""
    repair = run_repair(world.context, deep=True)
    limits = {"log.events": CheckLimits(quarantine_rate=1.0)}
    outcomes = run_checks(world.context, ALL, now=utc(LATER), names=["log.events"], limits=limits)
    failed = [item.sentence for item in outcomes if not item.passed]
    findings = run_doctor(world.context, deep=True)
    assert findings.is_clean, [*map(str, findings.findings), *map(str, findings.unseen)]
    assert (repair.missing, repair.errors, failed) == (0, (), [])
    return True


# What goes


def test_small_objects_of_a_switched_day_go_and_their_rows_stay(world: World) -> None:
    switched_day(world)
    rows = world.ids()
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {"merged": 3, "replaced": 1}
    assert [key.rpartition("/")[2][:5] for key in keys(world)] == ["manif", "part-"]
    assert world.ids() == rows
    assert is_quiet(world)
    assert deleted(world) == {}, "the second time changes nothing"


def test_the_log_says_what_was_deleted_when_and_why(world: World) -> None:
    switched_day(world)
    before = keys(world)
    hours_pass(world, A_LONG_TIME)
    gc(world)
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM prism_gc_log").all()
    assert {row.object_key for row in rows} == set(before) - set(keys(world))
    assert {row.reason for row in rows} == {"merged", "replaced"}
    assert all(row.bucket_name == "lake" and row.content_length > 0 for row in rows)
    assert all(row.mark_time <= row.delete_time and str(row.partition_date) == DAY for row in rows)


def test_what_was_deleted_is_known_for_so_many_days(world: World) -> None:
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    gc(world)

    def days_later(days: int) -> int:
        later = datetime.now(timezone.utc) + timedelta(days=days)
        gc(world, now=later)
        with world.context.database.begin() as connection:
            return len(connection.exec_driver_sql("SELECT FROM prism_gc_log").all())

    assert days_later(364) == 4
    assert days_later(366) == 0
    assert is_quiet(world)


def test_nothing_goes_before_the_reader_lease_is_over(world: World) -> None:
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    late_rows_are_merged(world)
    hours_pass(world, 3.9)
    assert deleted(world) == {"merged": 3, "replaced": 1}, "what was replaced by the first manifest of merged objects"
    (part,) = [key for key in keys(world, "/part-") if "0003-r" in key]
    hours_pass(world, 0.2)
    report = gc(world).tables[0]
    assert (counts(report), report.young.objects) == ({"superseded": 1, "replaced": 1}, 2)
    assert part not in keys(world)
    assert is_quiet(world)


def test_nothing_goes_before_it_is_old_enough(world: World) -> None:
    switched_day(world)
    hours_pass(world, 71.9)
    report = gc(world).tables[0]
    assert (counts(report), report.young.objects) == ({}, 4)
    hours_pass(world, 0.2)
    assert deleted(world) == {"merged": 3, "replaced": 1}


def test_the_clock_of_a_run_can_be_set(world: World) -> None:
    switched_day(world)
    present = datetime.now(timezone.utc)
    assert deleted(world, now=present + timedelta(hours=71)) == {}
    assert deleted(world, now=present - timedelta(days=900)) == {}
    assert deleted(world, now=present + timedelta(hours=73)) == {"merged": 3, "replaced": 1}


def test_a_merged_object_that_was_never_committed_goes_when_its_merge_has_failed(world: World) -> None:
    """The merge fails after its upload, and the next merge writes another key."""
    closed_day(world)
    with pytest.raises(RuntimeError, match="dies"):
        another_worker(world, Dying(world.context.engine)).merge(AFTER)
    (abandoned,) = keys(world, "/part-")
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {"abandoned": 1}
    assert abandoned not in keys(world)
    arrive(world, AFTER)
    expire_leases(world)
    world.merge(LATER, everything=True)
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {}
    assert len(keys(world, "/part-")) == 1
    world.catalog(AFTER)
    assert is_quiet(world)


@dataclass
class Dying:
    """An engine whose worker dies after all uploads."""

    inner: Engine

    slots = 1

    def probe(self) -> None:
        """Harmless."""

    def run(self, tasks: Any, definitions: Any) -> Iterator[Any]:
        for result in list(self.inner.run(tasks, definitions)):
            if result:
                raise RuntimeError("it dies")
            yield result


def test_uploads_of_starts_that_are_over_go(world: World) -> None:
    open_day(world)
    arrive(world, broken=2)
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    list(world.context.engine.run(plan.tasks, plan.definitions))  # under way
    (kept,) = keys(world, "/quarantine/")
    stores = world.context.stores
    _, done, *_ = live = keys(world, "/live/")
    again = done.replace(".parquet", "-g0000").replace("-g0000", ".parquet").replace("/live/", "/delayed/")
    stray_day = done.replace(DAY, "2026-02-11")
    stray_lines = kept.replace("0004.jsonl", "0003.jsonl")
    for key in (stray_day, stray_lines, again):
        stores.put("lake", key, b"...")
    hours_pass(world, A_LONG_TIME)
    report = gc(world).tables[0]
    assert counts(report) == {"stray": 2}
    assert keys(world, "/live/") == live
    assert keys(world, "/quarantine/") == [kept]
    assert report.foreign_keys == (again,), "it is committed in the other tier: nobody here would have put it"


def test_strays_of_a_table_that_the_catalog_does_not_know_go(world: World) -> None:
    world.apply(a_table(merge=MERGE))
    arrive(world)
    (live,) = keys(world, "/live/")
    world.context.stores.put("lake", live.replace(DAY, "2026-02-11"), b"...")
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {"stray": 1}
    assert keys(world) == [live]


def test_an_upload_of_a_generation_before_goes(world: World) -> None:
    open_day(world)
    key = world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    list(world.context.engine.run(plan.tasks, plan.definitions))
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {}, f"the batch that has {key} may commit it"
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET generation = 1 WHERE state = 'claimed'")
    assert deleted(world) == {"stray": 1}


# What stays


def test_an_open_day_and_a_closed_one_keep_everything_that_was_committed(world: World) -> None:
    open_day(world)
    arrive(world, broken=1)
    world.merge(NOON, everything=True)
    before = keys(world)
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {}
    assert keys(world) == before
    world.catalog(AFTER)
    arrive(world, AFTER)
    world.merge(AFTER)
    before = keys(world)
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {}
    assert keys(world) == before
    assert is_quiet(world)


def test_late_rows_of_a_switched_day_stay_until_readers_have_them_merged(world: World) -> None:
    switched_day(world)
    arrive(world, LATER)
    world.catalog(LATER)
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {"merged": 3, "replaced": 2}
    (late,) = keys(world, "/delayed/")
    world.merge(LATER)
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {}, "merged, and not published"
    world.catalog(LATER)
    assert deleted(world) == {}, "published a moment ago"
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {"merged": 1, "superseded": 1, "replaced": 1}
    assert late not in keys(world)
    assert is_quiet(world)
    assert len(world.ids()) == 16


def test_what_is_not_ours_stays_and_is_told(world: World) -> None:
    switched_day(world)
    root = keys(world)[0].split("/")[0]
    foreign = sorted(
        (
            f"{root}/README",
            f"{root}/iceberg/metadata/v1.json",
            f"{root}/live/dt={DAY}/prism-0000000000000000099.parquet",
            f"{root}/merged/dt=2020-01-01/part-0000000000000000000-0000000000000000001.parquet",
            f"{root}/merged/dt={DAY}/old-manifest.json",
        )
    )
    for key in (*foreign, "beside/thing", f"{root}x/live/dt={DAY}/prism-0000000000000000001.parquet"):
        world.context.stores.put("lake", key, b"...")
    hours_pass(world, A_LONG_TIME)
    report = gc(world).tables[0]
    assert counts(report) == {"merged": 3, "replaced": 1}
    assert report.foreign.objects == len(foreign)
    assert set(report.foreign_keys) < set(foreign)
    assert "are not of prism, and stay" in " ".join(report.sentences(dry_run=False))
    assert set(foreign) < set(keys(world))
    assert {"beside/thing", marker_key("")} < {item.key for item in world.context.stores.list("lake", "")}


def test_staging_objects_stay(world: World) -> None:
    switched_day(world)
    before = [item.key for item in world.context.stores.list("staging", "")]
    hours_pass(world, A_LONG_TIME)
    gc(world)
    assert [item.key for item in world.context.stores.list("staging", "")] == before


@dataclass
class Sending:
    """A publisher whose readers use more keys than recorded."""

    inner: Any
    needed: frozenset[str] = frozenset()
    away: bool = False
    sick: str = ""

    def needed_keys(self, table: TableDefinition, days: Collection[date]) -> frozenset[str]:
        if self.away:
            raise CatalogUnavailable("it cannot be read")
        if str(table.name) == self.sick:
            raise InvariantBroken("it is sick")
        named: frozenset[str] = self.inner.needed_keys(table, days)
        return self.needed | named

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def sending(world: World, *keys: str, away: bool = False, sick: str = "") -> World:
    publisher = Sending(world.context.publisher, frozenset(keys), away, sick)
    context = dataclasses.replace(world.context, publisher=publisher)
    return dataclasses.replace(world, context=context)


def test_what_readers_are_sent_to_stays(world: World) -> None:
    switched_day(world)
    first, *_ = keys(world, "/live/")
    (manifest, *_) = keys(world, "/manifest-")
    hours_pass(world, A_LONG_TIME)
    report = gc(sending(world, first, manifest)).tables[0]
    assert (counts(report), report.needed.objects) == ({"merged": 2}, 2)
    assert first in keys(world)
    folder = first.rpartition("/")[0] + "/"
    assert deleted(sending(world, folder)) == {"replaced": 1}


def test_nothing_goes_while_the_catalog_cannot_tell(world: World) -> None:
    switched_day(world)
    before = keys(world)
    hours_pass(world, A_LONG_TIME)
    report = run_gc(sending(world, away=True).context)
    assert report.errors == ("log.events: it cannot be read",)
    assert keys(world) == before


def test_what_the_catalog_shows_stays_whatever_is_recorded(world: World) -> None:
    """A call of long ago landed and sent readers to the earlier manifest again."""
    switched_day(world)
    late_rows_are_merged(world)
    (old,) = keys(world, "/manifest-0000000000000000000-")
    (table,) = world.context.choose_tables(None)
    world.glue.publish(table, {date.fromisoformat(DAY): f"s3://lake/{old}"})
    rows = world.ids()
    hours_pass(world, A_LONG_TIME)
    report = gc(world).tables[0]
    assert report.needed.objects == 4, "the manifest, and the small objects that it names"
    assert world.ids() == rows


# Held back, dead, skipped, sick


def test_one_run_deletes_no_larger_part_than_the_setting_says(world: World) -> None:
    switched_day(world)
    settings = world.context.settings.model_copy(update={"gc_max_fraction": 0.4})
    careful = dataclasses.replace(world, context=dataclasses.replace(world.context, settings=settings))
    hours_pass(world, A_LONG_TIME)
    held_back, runs = [4], 0
    while held_back[-1]:
        report = gc(careful).tables[0]
        assert report.sum.objects == 1 or report.sum.objects <= 0.4 * report.listed.objects
        held_back.append(report.held_back.objects)
        told = "more are held back" in " ".join(report.sentences(dry_run=False))
        assert told == bool(held_back[-1])
        runs += 1
    assert runs > 1
    assert len(keys(world)) == 2
    assert is_quiet(world)


def test_a_dry_run_names_everything_and_changes_nothing(world: World) -> None:
    switched_day(world)
    before = keys(world)
    hours_pass(world, A_LONG_TIME)
    report = gc(world, dry_run=True)
    assert counts(report.tables[0]) == {"merged": 3, "replaced": 1}
    planned = [item.key for item in report.tables[0].planned]
    assert keys(world) == before
    assert deleted(world) == {"merged": 3, "replaced": 1}
    assert sorted(planned) == sorted(set(before) - set(keys(world)))


class Refusing(Stores):
    """Deletes some, and refuses the rest."""

    def delete(self, bucket: str, keys: Any) -> None:
        super().delete(bucket, keys[:2])
        raise AccessDenied("the role lacks the right to delete")


def refusing(world: World) -> World:
    return dataclasses.replace(
        world, context=dataclasses.replace(world.context, stores=Refusing(world.context.stores.config))
    )


def marks(world: World) -> int:
    with world.context.database.begin() as connection:
        statement = "SELECT count(*) FROM prism_gc_log WHERE delete_time IS NULL"
        return int(connection.exec_driver_sql(statement).scalar_one())


def test_what_could_not_be_deleted_is_told_and_goes_with_the_next_run(world: World) -> None:
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    report = run_gc(refusing(world).context)
    assert report.errors == ("log.events: the role lacks the right to delete",)
    assert marks(world) == 4
    assert deleted(world) == {"merged": 1, "replaced": 1}
    assert marks(world) == 0
    with world.context.database.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM prism_gc_log").scalar_one() == 4


def test_what_is_marked_for_days_is_told_by_status_and_doctor(world: World) -> None:
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    run_gc(refusing(world).context)
    with world.context.database.begin() as connection:
        assert gc_log.count_overdue(connection) == {}
        connection.exec_driver_sql("UPDATE prism_gc_log SET mark_time = mark_time - interval '3 days'")
    (status,) = read_status(world.context, now=utc(LATER))
    assert [(item.kind, item.count) for item in status.findings] == [("undeleted_garbage", 4)]
    assert [item.kind for item in run_doctor(world.context).findings] == ["undeleted_garbage"]
    gc(world)
    assert run_doctor(world.context).is_clean


def test_the_mark_of_an_object_that_stays_after_all_is_taken_back(world: World) -> None:
    switched_day(world)
    first, *_ = keys(world, "/live/")
    hours_pass(world, A_LONG_TIME)
    run_gc(refusing(world).context)
    left = keys(world, "/live/") + keys(world, "/manifest-")
    assert first in left or len(left) == 3
    gc(sending(world, *left))
    assert marks(world) == 0
    assert keys(world, "/live/") + keys(world, "/manifest-") == left


def test_one_sick_table_does_not_stop_the_others(world: World) -> None:
    world.apply(a_table("log.a", merge=MERGE), a_table("log.b", merge=MERGE))
    for stream in ("a", "b"):
        world.drop(some_rows(3, utc(NOON)), stream=stream)
    world.stream(NOON)
    for _ in range(2):
        world.catalog(AFTER)
        world.merge(AFTER)
    world.catalog(AFTER)
    hours_pass(world, A_LONG_TIME)
    report = run_gc(sending(world, sick="log.a").context)
    assert report.errors == ("log.a: it is sick",)
    assert [counts(table) for table in report.tables] == [{}, {"merged": 1, "replaced": 1}]


def test_a_table_that_another_run_is_at_is_skipped_and_told(world: World) -> None:
    switched_day(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_leases SELECT 'gc', 1, gen_random_uuid(), 'other', now(), now() + interval '1 hour'"
        )
    report = run_gc(world.context)
    assert "another garbage collection is working on it (other, since" in report.errors[0]
    assert report.tables[0].skipped
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_leases SET heartbeat_time = 'epoch'")
    hours_pass(world, A_LONG_TIME)
    assert deleted(world) == {"merged": 3, "replaced": 1}


def test_nothing_is_done_in_a_lake_of_another_database(world: World) -> None:
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    before = keys(world)
    world.context.stores.delete("lake", [marker_key("")])
    stranger = dataclasses.replace(world, context=dataclasses.replace(world.context))
    with pytest.raises(WrongLake):
        run_gc(stranger.context)
    assert keys(world) == before


def test_nothing_goes_of_tables_that_have_one_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    before = keys(world)
    (table,) = world.context.choose_tables(None)
    twin = dataclasses.replace(table, table_id=99, name=TableName("log", "twin", "log", "events"))
    monkeypatch.setattr(StageContext, "choose_with_dropped", lambda _self, _names: [table, twin])
    assert ["the same folder" in error for error in run_gc(world.context).errors] == [True, True]
    assert keys(world) == before


def test_an_unknown_table_is_wrong_use(world: World) -> None:
    switched_day(world)
    with pytest.raises(WrongUse):
        run_gc(world.context, names=["log.none"])


# At the same time


def what_readers_hold(world: World) -> list[ReadPartition]:
    """Publishes four manifests one after the other, the last three within the reader lease."""
    closed_day(world)
    arrive(world, AFTER)
    world.catalog(AFTER)
    hours_pass(world, A_LONG_TIME)
    held = [world.partition(DAY)]
    world.merge(AFTER)
    world.catalog(AFTER)
    held.append(world.partition(DAY))
    for _ in range(2):
        late_rows_are_merged(world)
        held.append(world.partition(DAY))
    hours_pass(world, A_LONG_TIME, of_publications=False)
    assert len({partition.location for partition in held}) == 4
    return held


def is_readable(world: World, partition: ReadPartition) -> bool:
    found = world.reader().filesystem.get_file_info(
        [path_of(place) for place in (partition.location, *(item.url for item in partition.objects))]
    )
    return all(info.is_file for info in found)


def test_readers_that_hold_a_manifest_read_all_that_it_names_for_as_long_as_their_lease(world: World) -> None:
    held = what_readers_hold(world)
    assert deleted(world) == {"replaced": 1}, "the manifest of before the first that is held"
    assert [is_readable(world, partition) for partition in held] == [True] * 4


def test_without_the_reader_lease_they_could_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = what_readers_hold(world)
    monkeypatch.setattr(Horizon, "at", classmethod(lambda cls, now, _settings: cls(floor=now, lease_began=now)))
    gc(world)
    assert [is_readable(world, partition) for partition in held] == [False, False, False, True]


def while_merging(world: World, meanwhile: Callable[[], object]) -> None:
    another_worker(world, PausingEngine(world.context.engine, meanwhile)).merge(LATER, everything=True)


def test_a_merge_that_was_claimed_before_finds_its_inputs(world: World) -> None:
    switched_day(world)
    arrive(world, LATER)
    world.catalog(LATER)
    hours_pass(world, A_LONG_TIME)
    while_merging(world, lambda: gc(world))
    world.catalog(LATER)
    hours_pass(world, A_LONG_TIME)
    while_merging(world, lambda: gc(world))
    assert is_quiet(world)
    assert len(world.ids()) == 16


def test_a_merge_that_lost_its_job_to_another_changes_nothing_when_its_inputs_are_gone(world: World) -> None:
    switched_day(world)
    arrive(world, LATER)
    world.catalog(LATER)

    def another_merges_and_all_that_it_leaves_goes() -> None:
        expire_leases(world)
        world.merge(LATER, everything=True)
        world.catalog(LATER)
        hours_pass(world, A_LONG_TIME)
        assert deleted(world) == {"merged": 4, "superseded": 1, "replaced": 3}

    while_merging(world, another_merges_and_all_that_it_leaves_goes)
    assert is_quiet(world)
    assert len(world.ids()) == 16


def test_what_a_merge_has_written_is_never_deleted_before_its_commit(world: World) -> None:
    closed_day(world)
    before_its_commit(world, lambda: gc_much_later(world))
    (there,) = keys(world, "/part-")
    world.catalog(AFTER)
    hours_pass(world, A_LONG_TIME)
    gc(world)
    assert keys(world, "/part-") == [there]
    assert is_quiet(world)


def test_it_would_be_lost_if_objects_of_running_merges_were_garbage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_day(world)
    for module in (plan_module, run_module):
        monkeypatch.setattr(
            module,
            "garbage_reason",
            lambda named, _records: Reason.ABANDONED if isinstance(named, MergedObjectKey) else None,
        )
    before_its_commit(world, lambda: gc_much_later(world))
    assert keys(world, "/part-") == []
    assert "merged_object" in [item.kind for item in run_doctor(world.context).findings]


def gc_much_later(world: World) -> None:
    hours_pass(world, A_LONG_TIME)
    gc(world)


def before_its_commit(world: World, meanwhile: Callable[[], object]) -> None:
    """Runs an action after a merge has written or found its objects and before its commit."""
    another_worker(world, LateEngine(world.context.engine, meanwhile)).merge(AFTER, everything=True)


@dataclass
class LateEngine:
    """Runs an action between its work and its answers."""

    inner: Engine
    meanwhile: Callable[[], object]

    slots = 1

    def probe(self) -> None:
        """Harmless."""

    def run(self, tasks: Any, definitions: Any) -> Iterator[Any]:
        results = list(self.inner.run(tasks, definitions))
        self.meanwhile()
        yield from results


def test_what_is_no_garbage_under_the_locks_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No known event causes this. The test covers a wrong rule."""
    switched_day(world)
    hours_pass(world, A_LONG_TIME)

    def reached(name: str) -> None:
        if name == "gc.after_plan":
            with world.context.database.begin() as connection:
                connection.exec_driver_sql("DELETE FROM prism_publication_history WHERE version > 0")

    monkeypatch.setattr(run_module, "failpoint", reached)
    assert deleted(world) == {}
