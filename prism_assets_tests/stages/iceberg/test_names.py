"""The owner of a name: a foreign table stays untouched, and our own is registered again or created anew."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from prism_assets.domain.findings import Acts
from prism_assets.domain.iceberg.snapshots import FAILED
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.iceberg.status import read_iceberg_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

TABLE = a_table(iceberg="true")
NOW = "2026-03-01T12:00"


def streamed(world: World, rows: int = 3) -> None:
    world.drop(some_rows(rows, utc("2026-03-01T10:00")))
    world.stream("2026-03-01T11:00")


def published(world: World) -> World:
    world.apply(TABLE)
    streamed(world)
    world.iceberg(NOW)
    return world


def errors(world: World, **options: Any) -> tuple[str, ...]:
    return run_iceberg(world.context, now=utc(NOW), ignore_pace=True, **options).errors


def for_a_person(world: World) -> list[str]:
    return [str(item) for item in read_findings(world.context, None, now=utc(NOW)) if item.acts is Acts.PERSON]


def test_a_table_that_somebody_makes_while_ours_is_made_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(TABLE)
    streamed(world)
    publisher = world.context.iceberg
    table = world.context.choose_tables(["log.events"])[0]
    original = publisher.create

    def second(*arguments: Any) -> Any:
        database, name = publisher.identifier(table)
        publisher.catalog.create_namespace(database)
        schema = Schema(NestedField(1, "x", LongType(), required=False))
        publisher.catalog.create_table((database, name), schema, location="s3://lake/theirs")
        return original(*arguments)

    monkeypatch.setattr(publisher, "create", second)

    told = errors(world)

    assert "that this installation did not make" in told[0]
    assert [field.name for field in world.iceberg_table().schema().fields] == ["x"]
    assert read_iceberg_status(world.context)[0].state == FAILED
    assert "that this installation did not make" in for_a_person(world)[0]


def test_a_table_of_another_installation_is_never_committed_to(world: World) -> None:
    published(world)
    streamed(world)
    before = world.iceberg_ids()
    another = replace(world.context.installation, installation_id="another")
    context = replace(world.context)
    context.__dict__["installation"] = another

    report = run_iceberg(context, now=utc(NOW), ignore_pace=True)

    assert "that this installation did not make" in report.errors[0]
    assert world.iceberg_ids() == before


def test_a_file_beside_the_metadata_that_nobody_can_read_keeps_no_table_from_its_name(world: World) -> None:
    published(world)
    table = world.context.choose_tables(["log.events"])[0]
    prefix = world.context.lake.keys(table).iceberg_prefix
    world.context.stores.put("lake", f"{prefix}metadata/99999-broken.metadata.json", json.dumps({"a": 1}).encode())
    world.context.iceberg.unregister(table)

    assert errors(world) == ()
    assert len(world.iceberg_ids()) == 3


def test_a_manifest_list_that_nobody_can_read_is_told_and_is_not_missing(world: World) -> None:
    published(world)
    head = world.iceberg_table().current_snapshot()
    assert head is not None
    world.context.stores.put("lake", head.manifest_list.removeprefix("s3://lake/"), b"no Avro")

    report = run_doctor(world.context)

    assert "missing_iceberg_files" not in {finding.kind for finding in report.findings}
    assert [problem.table for problem in report.unseen] == ["log.events"]


def test_a_head_that_cannot_be_read_waits_for_a_person_who_has_it_made_anew(world: World) -> None:
    published(world)
    streamed(world)
    world.merge("2026-03-01T13:00", everything=True)
    head = world.iceberg_table().current_snapshot()
    assert head is not None
    world.context.stores.delete("lake", [head.manifest_list.removeprefix("s3://lake/")])

    told = {finding.kind: finding.remedy for finding in run_doctor(world.context).findings}
    assert "`prism iceberg register --anew log.events`" in told["missing_iceberg_files"], "before the first commit"
    assert "`prism iceberg register --anew log.events`" in errors(world)[0]
    assert read_iceberg_status(world.context)[0].state == FAILED
    assert any("register --anew" in sentence for sentence in for_a_person(world))
    assert errors(world, register=True, anew=True) == ()
    assert len(world.iceberg_ids()) == 6
    assert for_a_person(world) == []
    assert run_doctor(world.context).is_clean


def test_a_name_that_was_made_otherwise_by_the_settings_is_not_left_behind(world: World) -> None:
    published(world)
    settings = world.settings.model_copy(update={"iceberg_database_suffix": "_lake"})
    publisher = world.context.iceberg
    publisher._suffix = settings.iceberg_database_suffix

    assert "PRISM_ICEBERG_DATABASE_SUFFIX" in errors(world)[0]


@pytest.mark.parametrize("on_foreign", ["restore", "stop"])
def test_a_table_that_somebody_set_back_is_foreign(world: World, on_foreign: str) -> None:
    world.apply(a_table(iceberg=f"{{on_foreign: {on_foreign}}}"))
    streamed(world)
    world.iceberg(NOW)
    streamed(world)
    world.iceberg(NOW)
    oldest = world.iceberg_table().metadata.snapshots[0].snapshot_id
    loaded = world.context.iceberg.load(world.context.choose_tables(["log.events"])[0])
    assert loaded is not None
    loaded.table.manage_snapshots().set_current_snapshot(oldest).commit()

    assert "set" in errors(world)[0]
    assert "back to its snapshot" in read_iceberg_status(world.context)[0].known.last_error  # type: ignore[union-attr, operator]
    second = errors(world)
    assert (second == ()) is (on_foreign == "restore")
    assert errors(world, restore=True) == ()
    assert len(world.iceberg_ids()) == 6


def test_only_our_tags_are_dropped(world: World) -> None:
    published(world)
    head = world.iceberg_table().current_snapshot()
    assert head is not None
    loaded = world.context.iceberg.load(world.context.choose_tables(["log.events"])[0])
    assert loaded is not None
    with loaded.table.manage_snapshots() as manage:
        manage.create_tag(head.snapshot_id, "day-of-the-audit")
    run_iceberg(world.context, now=utc(NOW), ignore_pace=True, optimize=True)
    assert "day-of-the-audit" in world.iceberg_table().metadata.refs
