"""Rights: every request of a stage to S3 and Glue is in the section of its role in docs/iam.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from prism_assets import aws_clients, platform
from prism_assets.domain.errors import ObjectMissing
from prism_assets.engine import inprocess
from prism_assets.kept import Kept
from prism_assets.objectstore.config import ObjectInfo, StoreConfig
from prism_assets.objectstore.parts import Part
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.drop.run import continue_drops, run_drop
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.history.run import run_history
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.requests import Requests, a_join_table, back, front
from prism_assets_tests.rights import POLICIES, SECTIONS, Right, policies_text, rights_of
from prism_assets_tests.stages.aging import delete_staging, gc, hours_pass, years_pass
from prism_assets_tests.stages.test_erase import later
from prism_assets_tests.world import World

DAY, NEXT = "2026-03-01", "2026-03-02"
NOON, AFTER, LATER = f"{DAY}T12:00", f"{NEXT}T00:10", f"{NEXT}T12:00"
EVENTS = "log.events"


# The recording


@dataclass
class Calls:
    """The requests to S3 and Glue: actions, on keys in the form of the document."""

    made: set[Right] = field(default_factory=set)

    def note(self, action: str, bucket: str, key: str | None = None) -> None:
        """Notes one call. For listings, and for anything in a staging bucket, only the bucket counts."""
        name = {"lake": "LAKE", "staging": "STAGING"}[bucket]
        self.made.add(Right(f"s3:{action}", name if key is None or name == "STAGING" else f"{name}/{key}"))

    def folders(self, action: str) -> set[str]:
        """Returns the folders of tables in the calls of an action, such as `live`."""
        places = (call.place for call in self.made if call.action == action)
        return {place.split("/")[2] for place in places if place.count("/") > 1 and "/prism-" not in place[:11]}


class RecordingStores(Stores):
    """Stores that note each call as the right it needs."""

    def __init__(self, config: StoreConfig, calls: Calls) -> None:
        super().__init__(config)
        self._calls = calls

    def _read_part(self, bucket: str, key: str, *arguments: Any, **options: Any) -> Part:
        self._calls.note("GetObject", bucket, key)
        try:
            return super()._read_part(bucket, key, *arguments, **options)
        except ObjectMissing:
            self._calls.note("ListBucket", bucket)  # without it S3 says of what is missing that it is forbidden
            raise

    def head(self, bucket: str, key: str) -> ObjectInfo:
        self._calls.note("GetObject", bucket, key)
        try:
            return super().head(bucket, key)
        except ObjectMissing:
            self._calls.note("ListBucket", bucket)
            raise

    def list(self, bucket: str, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        self._calls.note("ListBucket", bucket)
        return super().list(bucket, prefix, after=after)

    def put(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> None:
        self._calls.note("AbortMultipartUpload", bucket, key)  # what is long goes up in parts
        self._note_write(bucket, key, kind)
        super().put(bucket, key, body, kind=kind)

    def put_new(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> bool:
        self._note_write(bucket, key, kind)
        return super().put_new(bucket, key, body, kind=kind)

    def replace(
        self, bucket: str, key: str, body: bytes | memoryview, *, etag: str | None, kind: str | None = None
    ) -> bool:
        self._note_write(bucket, key, kind)
        return super().replace(bucket, key, body, etag=etag, kind=kind)

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._calls.note("DeleteObject", bucket, key)
        super().delete(bucket, keys)

    def _note_write(self, bucket: str, key: str, kind: str | None) -> None:
        self._calls.note("PutObject", bucket, key)
        if kind is not None:
            self._calls.note("PutObjectTagging", bucket, key)


@dataclass
class RecordedWorld:
    """A world whose steps each run in a role."""

    world: World
    calls: Calls

    @contextmanager
    def with_rights_of(self, *roles: str, dropping: bool = False) -> Iterator[Calls]:
        """Fails if a step needs a right that none of the roles has. Yields the calls."""
        self.calls.made.clear()
        yield self.calls
        rights = {right for role in roles for right in rights_of(role, dropping=dropping)}
        missing = {
            (call.action, re.sub(r"[\d-]{6,}", "N", call.place)) for call in self.calls.made if not _is_in(call, rights)
        }
        assert not missing, f"no right of {' and '.join(roles)}: {sorted(missing)}"


def _is_in(call: Right, rights: set[Right]) -> bool:
    return any(call.action == right.action and fnmatchcase(call.place, right.place) for right in rights)


@pytest.fixture
def recorded(
    services: Any, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecordedWorld]:
    """Stores and clients of boto3 are recorded; Iceberg tables are named by Glue, and one run may delete everything."""
    calls = Calls()
    recording: Callable[[StoreConfig], Stores] = partial(RecordingStores, calls=calls)
    monkeypatch.setattr(platform, "stores_of", recording)
    monkeypatch.setattr(inprocess, "stores_of", recording)
    monkeypatch.setattr(aws_clients, "CLIENTS", Kept())  # a client calls the handlers that were there when it was made
    session: Any = boto3.DEFAULT_SESSION

    def record(event_name: str, **_: Any) -> None:
        _event, service, action = event_name.split(".")
        calls.made.add(Right(f"{service}:{action}", "anything"))

    session.events.register("before-call", record)
    try:
        with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, iceberg_catalog="glue") as world:
            yield RecordedWorld(world, calls)
    finally:
        session.events.unregister("before-call", record)


# The runs


TABLE = a_table(merge="{interval: 0}", iceberg="{keep_hours: 4}") + "symlink: true\n"


def arrive(world: World, rows: int = 40, at: str = NOON) -> None:
    """Streams an object with rows and one invalid line."""
    world.drop([], body=as_lines(some_rows(rows, utc(at))) + b"broken\n")


def streamed(recorded: RecordedWorld, now: str) -> None:
    with recorded.with_rights_of("discover") as calls:
        assert run_discover(recorded.world.context, now=utc(now)).new
    assert Right("s3:ListBucket", "STAGING") in calls.made
    with recorded.with_rights_of("stream") as calls:
        assert run_stream(recorded.world.context, now=utc(now)).errors == ()
    assert Right("s3:GetObject", "STAGING") in calls.made


def shown(recorded: RecordedWorld, now: str) -> None:
    with recorded.with_rights_of("catalog"):
        recorded.world.catalog(now)
    with recorded.with_rights_of("iceberg"):
        recorded.world.iceberg(now)


def merged(recorded: RecordedWorld, now: str) -> None:
    with recorded.with_rights_of("merge") as calls:
        assert recorded.world.merge(now, everything=True).merged
    assert calls.folders("s3:PutObject") <= {"merged", "records"}


def examined(recorded: RecordedWorld, now: str = LATER) -> set[str]:
    """Returns the folders read by a deep examination."""
    with recorded.with_rights_of("doctor") as calls:
        assert run_doctor(recorded.world.context, deep=True, now=utc(now)).findings == ()
    return calls.folders("s3:GetObject")


def switched(recorded: RecordedWorld) -> None:
    """Makes a switched day with one merged object of two inputs."""
    for _ in range(2):
        arrive(recorded.world)
        streamed(recorded, NOON)
        shown(recorded, NOON)
    assert examined(recorded) - {"iceberg"} == {"live"}
    shown(recorded, AFTER)
    merged(recorded, AFTER)
    shown(recorded, AFTER)


def test_the_rights_of_a_role_are_read_from_its_section() -> None:
    assert rights_of("discover") == {
        Right("s3:ListBucket", "STAGING"),
        Right("s3:GetObject", "LAKE/prism-installation.json"),
    }
    assert Right("s3:DeleteObject", "LAKE/*/delayed/*") in rights_of("stream")
    assert Right("glue:BatchUpdatePartition", "*") in rights_of("catalog")
    assert not any("STAGING" in right.place for right in rights_of("catalog"))
    writes = {"s3:PutObject", "s3:DeleteObject", "s3:PutObjectTagging", "s3:AbortMultipartUpload"}
    for role in SECTIONS:
        assert not [right for right in rights_of(role) if right.action in writes and "STAGING" in right.place]


def test_the_policies_of_terraform_have_the_rights_of_the_document() -> None:
    assert POLICIES.read_text() == policies_text(), "run python -m prism_assets_tests.rights"


def test_what_a_role_has_no_right_for_is_found(recorded: RecordedWorld) -> None:
    recorded.world.apply(TABLE)
    arrive(recorded.world)
    with (
        pytest.raises(AssertionError, match=r"no right of discover: .*PutObject.*/live/"),
        recorded.with_rights_of("discover"),
    ):
        recorded.world.stream(NOON)


def test_what_a_role_has_no_right_for_in_glue_is_found(recorded: RecordedWorld) -> None:
    recorded.world.apply(TABLE)
    with (
        pytest.raises(AssertionError, match=r"no right of merge: .*glue:CreateTable"),
        recorded.with_rights_of("merge"),
    ):
        recorded.world.catalog(NOON)


def test_a_day_is_switched_and_collected_with_the_rights_of_each_stage(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(TABLE)
    switched(recorded)
    arrive(world)
    streamed(recorded, LATER)
    shown(recorded, LATER)
    assert examined(recorded) == {"delayed", "merged", "symlink", "iceberg"}
    merged(recorded, LATER)
    shown(recorded, LATER)
    hours_pass(world, 100)
    with recorded.with_rights_of("gc") as calls:
        gc(world)
    assert calls.folders("s3:DeleteObject") == {"merged", "symlink", "quarantine", "iceberg"}
    with recorded.with_rights_of("iceberg"):
        world.iceberg("2026-12-05T12:00", optimize=True)


def test_a_day_expires_and_its_rows_are_archived_with_the_rights_of_gc(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(a_table(merge="{interval: 0}") + "symlink: true\nretention_days: 1\n")
    switched(recorded)
    shown(recorded, "2026-03-09T12:00")
    years_pass(world)
    hours_pass(world, 10_000)
    delete_staging(world)
    shown(recorded, "2026-03-09T12:00")
    with recorded.with_rights_of("gc") as calls:
        for days in (100, 200):
            (report,) = gc(world, now=later(days)).tables
    assert calls.folders("s3:DeleteObject") >= {"live", "merged", "symlink"}
    assert (report.archived.objects, calls.folders("s3:PutObject")) == (2, {"archive"})
    assert Right("s3:GetObject", "STAGING") in calls.made


def test_a_history_comes_in_with_the_rights_of_discover_and_stream(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(a_table(stream=f'url: "s3://staging/events/", since: "{DAY}"', accept="{from: object}"))
    world.drop(some_rows(3, utc("2026-02-01T10:00")), stream="events/dt=2026-02-01")
    with recorded.with_rights_of("discover", "stream") as calls:
        report = run_history(world.context, EVENTS, first=date(2026, 2, 1), clock=lambda: utc(NOON))
    assert (report.errors, report.stream.objects) == ((), 1)
    assert {Right("s3:ListBucket", "STAGING"), Right("s3:GetObject", "STAGING")} <= calls.made


def test_uploads_of_before_are_removed_with_the_rights_of_stream(recorded: RecordedWorld) -> None:
    recorded.world.apply(TABLE)
    arrive(recorded.world)
    streamed(recorded, NOON)
    with recorded.world.context.database.begin() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO prism_abandoned_uploads VALUES (1, 9, 1, '{DAY}', '{DAY}', now() - interval '1 hour')"
        )
    with recorded.with_rights_of("stream") as calls:
        run_stream(recorded.world.context, now=utc(NOON))
    assert calls.folders("s3:DeleteObject") == {"live", "delayed"}


def test_lost_objects_and_strays_are_mended_with_the_rights_of_repair(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(TABLE)
    for at in (NOON, LATER):
        arrive(world, at=at)
    streamed(recorded, LATER)
    shown(recorded, LATER)
    arrive(world)
    streamed(recorded, LATER)
    lost = [item.key for item in world.context.stores.list("lake", "") if item.key.endswith(".parquet")]
    world.context.stores.delete("lake", lost)
    open_day = next(key for key in lost if f"/live/dt={NEXT}" in key)
    world.context.stores.put("lake", open_day.replace(".parquet", "-g1.parquet"), b"of a task that outlived its driver")
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET generation = 2")
    with recorded.with_rights_of("repair") as calls:
        report = run_repair(world.context, deep=True)
    assert (report.repaired, report.strays) == (len(lost), 1)
    assert calls.folders("s3:PutObject") == {"live", "delayed"}


def test_a_day_is_rebuilt_with_the_rights_of_rebuild_stream_and_merge(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(TABLE)
    switched(recorded)
    world.apply(TABLE.replace("columns:\n", "columns:\n  - {name: kind, type: string}\n"))
    with recorded.with_rights_of("rebuild", "stream", "merge") as calls:
        assert run_rebuild(world.context, EVENTS, day=utc(NOON).date(), now=utc(LATER)).errors == ()
    assert "quarantine" in calls.folders("s3:GetObject")
    assert "merged" in calls.folders("s3:PutObject")


def test_rows_are_erased_and_that_is_proved_with_the_rights_of_erase_and_gc(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(TABLE)
    switched(recorded)
    arrive(world)
    streamed(recorded, AFTER)
    shown(recorded, AFTER)
    with recorded.with_rights_of("erase") as calls:
        assert run_erase(world.context, EVENTS, "id % 40 = 7").errors == ()
    assert calls.folders("s3:PutObject") == {"delayed", "merged", "quarantine"}
    shown(recorded, AFTER)
    shown(recorded, AFTER)
    with recorded.with_rights_of("erase", "gc") as calls:
        continue_erasures(world.context, forced=True)
        (erasure,) = continue_erasures(world.context, forced=True, now=later()).erasures
    assert erasure.state == "proved", erasure
    assert calls.folders("s3:PutObject") == set()


def test_a_table_is_dropped_with_the_rights_of_gc(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(TABLE)
    arrive(world)
    streamed(recorded, NOON)
    shown(recorded, NOON)
    file = world.settings.tables_dir / "events.yaml"
    file.write_text(re.sub(r"streams:\n.*\n", "", file.read_text()) + "retired: true\n")
    world.apply(now="2026-03-03T00:00")
    file.unlink()
    with recorded.with_rights_of("gc", dropping=True):
        assert run_drop(world.context, EVENTS, confirm=EVENTS, now=utc("2026-04-03T00:00")).errors == ()
    shown(recorded, "2026-04-03T00:01")
    hours_pass(world, 10_000)
    with recorded.with_rights_of("gc", dropping=True) as calls:
        for days in (200, 300):
            assert continue_drops(world.context, now=later(days)).errors == ()
    assert {"live", "iceberg"} <= calls.folders("s3:DeleteObject")


def test_a_join_table_is_folded_merged_and_erased_from_with_the_rights_of_each_stage(recorded: RecordedWorld) -> None:
    world = recorded.world
    world.apply(a_join_table(dirty=0.9))
    requests = Requests(world)
    folded: set[str] = set()
    for now, key in ((NOON, "one"), (f"{NEXT}T11:30", "two"), (f"{NEXT}T11:40", "three")):
        world.drop([back(key, now, 1, 7), back("gone", now, 1), back("hidden", now, 1, op="D")], stream="back")
        world.drop([front(key, now, "home"), front("alone", now)], stream="front")
        streamed(recorded, now)
        with recorded.with_rights_of("fold") as calls:
            requests.fold(now)
        folded |= calls.folders("s3:PutObject")
        shown(recorded, now)
        merged(recorded, now)
    shown(recorded, LATER)
    assert folded == {"records", "hidden", "pending"}
    examined(recorded)
    hours_pass(world, 100)
    with recorded.with_rights_of("gc") as calls:
        gc(world, now=later(100))
    assert calls.folders("s3:DeleteObject")
    with recorded.with_rights_of("erase") as calls:
        assert run_erase(world.context, "log.request", "request_id = 'gone'", rows=5).errors == ()
    assert calls.folders("s3:PutObject") >= {"records", "hidden", "merged"}
