"""The doctor: each kind of damage planted for real, found and named; and nothing found where nothing is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import pytest

from prism_assets.domain.errors import CatalogUnavailable, PrismError, WrongUse
from prism_assets.domain.files.keys import marker_key
from prism_assets.domain.findings import Finding
from prism_assets.metadata import invariants
from prism_assets.objectstore.manifests import read_manifest, write_manifest
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.doctor.report import DoctorReport
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.invariants import RULES, RULES_OF_PUBLISHED_DESIGN
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_small_object, a_table, as_lines, some_rows, utc
from prism_assets_tests.flow.test_life_of_a_partition import _everything
from prism_assets_tests.requests import Requests, a_join_table, back
from prism_assets_tests.stages.catalogs import through
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"
LATER = "2026-03-08T12:00"


def examine(world: World, *, deep: bool = False) -> DoctorReport:
    return run_doctor(world.context, deep=deep)


def found(world: World, *, deep: bool = False) -> list[tuple[str | None, str]]:
    """Returns invariant and name of every finding."""
    report = examine(world, deep=deep)
    assert report.unseen == ()
    return [(item.invariant, item.kind) for item in report.findings]


def the_finding(world: World, *, deep: bool = False) -> Finding:
    (finding,) = examine(world, deep=deep).findings
    return finding


def sql(world: World, *statements: str) -> None:
    """Changes rows as no statement of the product does, without constraints."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for statement in statements:
            connection.exec_driver_sql(statement)


def keys(world: World, part: str) -> list[str]:
    return sorted(item.key for item in world.context.stores.list("lake", "") if part in item.key)


def an_object(world: World, now: str = NOON, rows: int = 4) -> None:
    world.drop(some_rows(rows, utc(NOON)))
    world.stream(now)


def open_day(world: World) -> None:
    world.apply(a_table())
    for _ in range(3):
        an_object(world)
    world.catalog(NOON)


def closed_day(world: World) -> None:
    open_day(world)
    world.catalog(AFTER)


def switched_day(world: World) -> None:
    closed_day(world)
    world.merge(AFTER)
    world.catalog(AFTER)


def late_rows_of_a_switched_day(world: World) -> None:
    switched_day(world)
    an_object(world, LATER)
    world.catalog(LATER)


# Nothing is wrong


def life(world: World) -> Iterator[str]:
    """Takes a day step by step from nothing to merged late rows. Yields each step."""
    world.apply(a_table(merge="{interval: 0, target_bytes: 1000, max_objects: 2}"))
    yield "applied"
    for number in range(5):
        rows = some_rows(20, utc(NOON))
        world.drop([], body=as_lines(rows) + (b"broken\n" if number % 2 else b""))
    world.discover(NOON)
    yield "discovered"
    for name, step in (("streamed", world.stream), ("merged while it is open", world.merge), ("shown", world.catalog)):
        step(NOON)
        yield name
    world.drop(some_rows(3, utc(NOON)))
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    yield "claimed by a worker that dies"
    list(world.context.engine.run(plan.tasks, plan.definitions))
    yield "uploaded by a worker that dies"
    world.catalog(AFTER)
    yield "marked"
    sql(world, "UPDATE prism_stream_batches SET heartbeat_time = 'epoch' WHERE state = 'running'")
    for name, step in (("streamed again", world.stream), ("closed", world.catalog), ("merged", world.merge)):
        step(AFTER)
        yield name
    world.catalog(AFTER)
    yield "switched"
    world.drop(some_rows(3, utc(NOON)))
    for name, step in (("late", world.stream), ("late and shown", world.catalog), ("late and merged", world.merge)):
        step(LATER)
        yield name
    world.catalog(LATER)
    yield "at rest"


def test_nothing_is_found_in_the_whole_life_of_a_day(world: World) -> None:
    for step in life(world):
        assert (step, [*map(str, examine(world, deep=True).findings)]) == (step, [])
    assert world.status(DAY, LATER).state == "switched"


@dataclass
class Examiner(threading.Thread):
    """Examines again and again until told to stop."""

    world: World
    reports: list[DoctorReport] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.done.is_set():
            try:
                self.reports.append(examine(self.world))
            except BaseException as error:
                self.errors.append(error)
                return

    def finish(self) -> None:
        self.done.set()
        self.join(timeout=60)


def test_nothing_is_found_while_everything_is_being_written(world: World) -> None:
    world.apply(a_table(merge="{interval: 0, target_bytes: 3000, max_objects: 4}"))
    examiner = Examiner(world)
    examiner.start()
    try:
        for number in range(24):
            now = NOON if number < 16 else AFTER
            an_object(world, now, rows=50)
            world.merge(now)
            world.catalog(now)
    finally:
        examiner.finish()
    assert examiner.errors == []
    assert [str(item) for report in examiner.reports for item in report.findings] == []
    assert len(examiner.reports) > 5, "it looked often enough to see things move"
    assert world.status(DAY, AFTER).state == "switched"


def test_it_changes_nothing(world: World) -> None:
    late_rows_of_a_switched_day(world)
    before = _everything(world)
    assert examine(world, deep=True).is_clean
    assert _everything(world) == before


def test_postgresql_itself_refuses_it_every_change(world: World) -> None:
    switched_day(world)
    with pytest.raises(PrismError, match="takes no changes"):
        _change_beside_reading(world)


def _change_beside_reading(world: World) -> None:
    with world.context.database.begin() as connection:
        invariants.begin_reading(connection)
        connection.exec_driver_sql("UPDATE prism_partitions SET switched = false")


# Records


@pytest.mark.parametrize(
    ("play", "statement", "invariant", "name", "facts"),
    [
        (
            closed_day,
            "UPDATE prism_partitions SET last_live_object_id = 2",
            "I3",
            "live_behind_close",
            "1 live small object came after the close",
        ),
        (
            switched_day,
            "UPDATE prism_merge_ranges SET lower_bound = 1 WHERE lower_bound = 0",
            "I5",
            "broken_chain",
            "a range begins at 1 where 0 ends",
        ),
        (
            switched_day,
            "DELETE FROM prism_switch_certificates",
            "I5",
            "no_certificate",
            "it is switched without a certificate",
        ),
        (
            switched_day,
            "UPDATE prism_merge_ranges SET fingerprint = fingerprint + 1 WHERE lower_bound = 0",
            "I5",
            "unequal_ranges",
            "the range (0, 3] holds 12 rows and not the same as the 12 rows",
        ),
        (
            switched_day,
            "UPDATE prism_merge_ranges SET row_count = 11 WHERE lower_bound = 0",
            "I5",
            "unequal_ranges",
            "holds 11 rows and not the same as the 12 rows",
        ),
        (
            open_day,
            "UPDATE prism_staging_objects SET lines_in = 5, rows_quarantined = 1 WHERE prism_staging_object_id = 2",
            "I9",
            "unbalanced",
            "5 lines in, 4 rows out of which 4 are in small objects, 1 quarantined of which 0 are kept",
        ),
        (
            open_day,
            "UPDATE prism_small_objects SET row_count = 3 WHERE prism_staging_object_id = 2",
            "I9",
            "unbalanced",
            "4 lines in, 4 rows out of which 3 are in small objects",
        ),
        (
            open_day,
            "UPDATE prism_staging_objects SET state = 'pending' WHERE prism_staging_object_id = 2",
            "I2",
            "committed_and_unfinished",
            "1 small object is committed though its staging object is not done",
        ),
        (
            open_day,
            "UPDATE prism_partitions SET last_object_id = 2",
            "I1",
            "last_object",
            "the last small object is 3, on record is 2",
        ),
        (
            closed_day,
            "UPDATE prism_partitions SET closing_batch_id = 99",
            "I3",
            "mark_beyond_batches",
            "the mark is 99, the last batch ",
        ),
        (
            closed_day,
            "DELETE FROM prism_merge_jobs",
            "I10",
            "never_merged",
            "3 small objects of a closed day are not merged, and no merge is scheduled",
        ),
        (
            late_rows_of_a_switched_day,
            "DELETE FROM prism_merge_jobs",
            "I10",
            "never_merged",
            "small object 4 lies above 3",
        ),
        (
            closed_day,
            "UPDATE prism_merge_jobs SET parked = true, attempts = 5, last_error = 'no space'",
            "I10",
            "parked_merge",
            "after 5 tries: no space",
        ),
        (
            open_day,
            "SELECT setval('prism_small_objects_prism_small_object_id_seq', 2)",
            "I8",
            "ids_come_again",
            "prism_small_objects: the greatest id is 3, the next one 3",
        ),
    ],
)
def test_what_contradicts_itself_on_record_is_found(
    world: World, play: Callable[[World], None], statement: str, invariant: str, name: str, facts: str
) -> None:
    play(world)
    sql(world, statement)
    known = {(item.invariant, item.kind): item for item in examine(world).findings}
    finding = known[invariant, name]
    assert facts in finding.says
    assert finding.remedy
    if name != "ids_come_again":
        assert finding.table == "log.events"


def test_versions_beyond_what_there_is_are_found(world: World) -> None:
    switched_day(world)
    sql(world, "UPDATE prism_publications SET version = 9, published_object_id = 9")
    assert {("I4", "current_beyond_desired"), ("I4", "published_beyond")} <= set(found(world))
    sql(world, "UPDATE prism_partitions SET desired_manifest_version = 9")
    assert ("I5", "desired_without_ranges") in found(world)


def test_objects_that_nobody_gives_back_are_found(world: World) -> None:
    open_day(world)
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    assert start_batch(world.context, None) is not None
    assert found(world) == []
    sql(world, "UPDATE prism_stream_batches SET state = 'dead' WHERE state = 'running'")
    assert found(world) == [("I10", "held_by_nobody")]


def test_objects_that_are_not_read_are_found(world: World) -> None:
    open_day(world)
    sql(
        world,
        "INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length, "
        "first_receive_time, state, last_error) VALUES (1, 1, 'staging', 'events/x', 1, now(), 'failed', 'it is gone')",
    )
    finding = the_finding(world)
    assert (finding.invariant, finding.kind) == ("I10", "unread_objects")
    assert "s3://staging/events/x: it is gone" in finding.says


def test_uploads_that_are_not_removed_in_time_are_found(world: World) -> None:
    open_day(world)
    note = "INSERT INTO prism_abandoned_uploads VALUES (1, 0, 1, '2026-03-01', '2026-03-01', now() - interval '{}')"
    sql(world, note.format("1 minute"))
    assert found(world) == []
    sql(world, "DELETE FROM prism_abandoned_uploads", note.format("2 hours"))
    assert found(world) == [("I2", "unremoved_uploads")]


def test_committed_rows_that_no_catalog_run_would_look_for_are_found(world: World) -> None:
    switched_day(world)
    sql(world, "UPDATE prism_publications SET version = 0, published_object_id = 0")
    assert ("I1", "not_to_be_published") in found(world)


def test_every_rule_has_a_test_of_its_own_name() -> None:
    """A new rule without a test fails here."""
    assert {rule.kind for rule in (*RULES, *RULES_OF_PUBLISHED_DESIGN)} == {
        "live_behind_close", "broken_chain", "desired_without_ranges", "current_beyond_desired", "never_merged",
        "late_in_range", "unbalanced", "committed_and_unfinished", "last_object", "unequal_ranges", "published_beyond",
        "no_certificate", "mark_beyond_batches", "ids_come_again", "held_by_nobody",
        "not_to_be_published",
        "unequal_offsets", "unequal_records",  # in test_topic_findings
    }  # fmt: skip


# Store


@pytest.mark.parametrize(
    ("play", "part", "name"),
    [
        (open_day, "/live/", "small_object"),
        (closed_day, "/live/", "small_object"),
        (late_rows_of_a_switched_day, "/delayed/", "small_object"),
        (switched_day, "/part-", "merged_object"),
        (closed_day, "/manifest-", "manifest"),
    ],
)
def test_an_object_that_is_missing_is_found(world: World, play: Callable[[World], None], part: str, name: str) -> None:
    play(world)
    key = keys(world, part)[-1]
    world.context.stores.delete("lake", [key])
    finding = the_finding(world)
    assert (finding.invariant, finding.kind, finding.date) == ("I4", name, date(2026, 3, 1))
    assert key in finding.says
    assert "is missing" in finding.says


@pytest.mark.parametrize(
    ("play", "part", "name"), [(open_day, "/live/", "small_object"), (switched_day, "/part-", "merged_object")]
)
def test_an_object_of_another_length_is_found(
    world: World, play: Callable[[World], None], part: str, name: str
) -> None:
    play(world)
    world.context.stores.put("lake", keys(world, part)[0], b"short")
    finding = the_finding(world)
    assert (finding.invariant, finding.kind) == ("I4", name)
    assert "has 5 bytes, not" in finding.says


def test_small_objects_that_nobody_needs_any_more_may_be_gone(world: World) -> None:
    switched_day(world)
    world.context.stores.delete("lake", keys(world, "/live/"))
    assert found(world, deep=True) == []


def test_an_upload_of_a_task_that_outlived_its_driver_is_found(world: World) -> None:
    open_day(world)
    key = keys(world, "/live/")[0]
    stray = key.replace(".parquet", "-g1.parquet")
    world.context.stores.put("lake", stray, world.context.stores.get("lake", key))
    sql(world, "UPDATE prism_staging_objects SET generation = 2 WHERE prism_staging_object_id = 1",
        "UPDATE prism_small_objects SET generation = 0")  # fmt: skip
    finding = the_finding(world)
    assert (finding.invariant, finding.kind) == ("I2", "stray")
    assert stray in finding.says


def test_what_a_batch_may_still_commit_is_no_finding(world: World) -> None:
    open_day(world)
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    list(world.context.engine.run(plan.tasks, plan.definitions))
    assert len(keys(world, "/live/")) == 4
    assert found(world) == []


@pytest.mark.parametrize("name", ["prism-0000000000000000099.parquet", "part-1.parquet"])
def test_what_somebody_else_put_where_readers_look_is_found(world: World, name: str) -> None:
    open_day(world)
    key = keys(world, "/live/")[0].rsplit("/", 1)[0] + f"/{name}"
    world.context.stores.put("lake", key, b"rows")
    finding = the_finding(world)
    assert (finding.invariant, finding.kind) == ("I2", "foreign")
    assert key in finding.says


# Catalog


def catalog_partition(world: World) -> dict[str, Any]:
    return {
        "DatabaseName": f"{world.settings.glue_database_prefix}log",
        "TableName": "events",
        "PartitionValues": [DAY],
    }


def test_a_day_that_the_catalog_lost_is_found(world: World) -> None:
    closed_day(world)
    client = world.glue._client
    del (where := {**catalog_partition(world)})["PartitionValues"]
    client.delete_partition(**where, PartitionValues=[DAY])
    finding = the_finding(world)
    assert (finding.invariant, finding.kind) == ("I1", "catalog")
    assert "shows no such partition" in finding.says


def test_a_day_that_the_catalog_shows_elsewhere_is_found(world: World) -> None:
    closed_day(world)
    (table,) = world.context.choose_tables(None)
    before = world.partition(DAY).location
    live = world.context.lake.url(world.context.lake.keys(table).live_prefix(date(2026, 3, 1)))
    world.glue.publish(table, {date(2026, 3, 1): live})
    finding = the_finding(world)
    assert (finding.invariant, finding.kind) == ("I4", "catalog")
    assert (live in finding.says, before in finding.says) == (True, True)


def test_a_table_that_the_catalog_lost_is_found(world: World) -> None:
    closed_day(world)
    client = world.glue._client
    client.delete_table(DatabaseName=f"{world.settings.glue_database_prefix}log", Name="events")
    assert found(world) == [("I1", "catalog")]


@dataclass
class SilentCatalog:
    """Does not answer."""

    def shown_locations(self, table: object, days: object) -> dict[date, str]:
        raise CatalogUnavailable("Glue does not answer")


def test_what_cannot_be_looked_at_is_told_and_the_rest_is_examined(world: World) -> None:
    closed_day(world)
    world.context.stores.delete("lake", keys(world, "/live/")[:1])
    object.__setattr__(world.context, "publisher", through(world, SilentCatalog()))
    report = examine(world)
    assert [str(problem) for problem in report.unseen] == ["log.events: Glue does not answer"]
    assert [item.kind for item in report.findings] == ["small_object"]
    assert not report.is_clean


def test_a_database_and_a_lake_that_do_not_belong_together_are_found(world: World) -> None:
    closed_day(world)
    world.context.stores.delete("lake", [marker_key(world.context.lake.prefix)])
    (finding,) = run_doctor(replace(world.context)).findings
    assert (finding.invariant, finding.kind, finding.table) == ("I1", "wrong_lake", None)


def test_a_lake_that_cannot_be_reached_is_told(world: World) -> None:
    closed_day(world)
    (world.root / "buckets" / "lake").rename(world.root / "buckets" / "away")
    report = run_doctor(replace(world.context, stores=Stores(world.context.lake.store)))
    assert [problem.table for problem in report.unseen] == ["all tables"]
    assert "bucket lake does not exist" in report.unseen[0].reason


# Deeper


def test_a_manifest_that_names_something_else_is_found_by_a_deep_look(world: World) -> None:
    closed_day(world)
    key = keys(world, "/manifest-")[-1]
    entries = read_manifest(world.context.stores.get("lake", key))
    world.context.stores.put(
        "lake",
        key,
        write_manifest(
            [a_small_object(key=e.url.removeprefix("s3://lake/"), content_length=e.content_length) for e in entries[1:]]
        ),
    )
    assert found(world) == []
    finding = the_finding(world, deep=True)
    assert (finding.invariant, finding.kind) == ("I4", "manifest_entries")
    assert f"lacks 1 object that is committed, such as {entries[0].url}" in finding.says


def test_damage_that_keeps_the_length_is_found_by_a_deep_look(world: World) -> None:
    closed_day(world)
    key = keys(world, "/live/")[0]
    body = bytearray(world.context.stores.get("lake", key))
    body[len(body) // 2] ^= 255
    world.context.stores.put("lake", key, bytes(body))
    assert found(world) == []
    assert found(world, deep=True) == [("I4", "damaged_objects")]


def test_a_table_that_does_not_exist_is_wrong_use(world: World) -> None:
    open_day(world)
    with pytest.raises(WrongUse, match=r"there is no table log\.other"):
        run_doctor(world.context, names=["log.other"])


def test_only_the_tables_named_are_looked_at(world: World) -> None:
    open_day(world)
    world.apply(a_table("log.other"))
    sql(world, "UPDATE prism_partitions SET last_object_id = 2")
    assert run_doctor(world.context, names=["log.other"]).findings == ()
    assert len(run_doctor(world.context, names=["log.events"]).findings) == 1


def test_a_day_of_records_that_are_all_hidden_has_nothing_to_show(world: World) -> None:
    world.apply(a_join_table())
    requests = Requests(world)
    requests.arrive([("back", back("x", NOON, 1, op="D"))], NOON)
    for now in ("2026-03-01T12:01", "2026-03-01T12:02"):
        requests.show(now)
    found = run_doctor(world.context, deep=True, now=utc(f"{DAY}T13:05")).findings
    assert [item.says.split(" has ")[0] for item in found] == ["stream front"], "which found no object"
