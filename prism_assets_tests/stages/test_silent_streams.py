"""Streams without objects: status, doctor, a check and the end of a run report them, with their start and a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.intake import staging_objects, streams
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.findings.streams import SILENT_STREAMS, STREAMS
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

NOON, SOON, LATER = "2026-03-01T12:00", "2026-03-01T12:10", "2026-03-01T13:30"
NOTHING_FOUND = (
    "stream events has found no object to read at s3://staging/events/ since 2026-03-01 12:00Z. Correct its url in the "
    "table file, or say `enabled: false` until objects come"
)


def silent(world: World, now: str) -> list[str]:
    """Returns the sentences of status on silent streams."""
    found = (item for table in read_status(world.context, now=utc(now)) for item in table.findings)
    return [item.text for item in found if item.kind == "silent_stream"]


def left(world: World, now: str) -> Sequence[Finding]:
    return read_findings(world.context, None, [STREAMS], now=utc(now))


def test_a_stream_that_never_found_an_object_is_told_by_all_who_are_asked(world: World) -> None:
    world.apply(a_table())
    assert silent(world, NOON) == [], "nobody has looked yet"
    world.discover(NOON)
    world.discover(SOON)
    assert silent(world, SOON) == silent(world, LATER) == [NOTHING_FOUND]
    (finding,) = run_doctor(world.context).findings
    assert (finding.kind, finding.table, finding.text) == ("silent_stream", "log.events", NOTHING_FOUND)
    assert [str(item) for item in left(world, LATER)] == [f"log.events: {NOTHING_FOUND}"]


def test_an_hour_without_an_object_makes_it_a_matter_for_a_person(world: World) -> None:
    """Its writer may start a little later than the table."""
    world.apply(a_table())
    world.discover(NOON)
    young, old = check(world, SILENT_STREAMS, SOON), check(world, SILENT_STREAMS, LATER)
    assert (young.passed, young.sentence) == (True, NOTHING_FOUND)
    assert (old.passed, old.sentence) == (False, NOTHING_FOUND)
    assert [item.acts for item in (*left(world, SOON), *left(world, LATER))] == [Acts.TIME, Acts.PERSON]


def test_a_stream_that_once_found_an_object_is_not_silent_when_its_prefix_is_empty_again(world: World) -> None:
    world.apply(a_table())
    key = world.drop(some_rows(1, utc(NOON)))
    world.discover(NOON)
    (Path(world.root) / "buckets" / "staging" / key).unlink()
    world.discover(SOON)
    assert silent(world, LATER) == []
    assert check(world, SILENT_STREAMS, LATER).passed


def test_an_object_that_only_a_message_told_of_counts_as_found(world: World) -> None:
    world.apply(a_table())
    world.discover(NOON)
    with world.context.database.begin() as connection:
        (known,) = streams.load_streams(connection)
        told = FoundObject(bucket="staging", key="events/1.gz", etag=None, content_length=1, send_time=None)
        staging_objects.register(connection, known.stream_id, [told], utc(SOON))
    assert silent(world, LATER) == []


def test_a_bucket_that_goes_is_told_with_since_when_and_until_it_comes_back(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(NOON)))
    world.discover(NOON)
    bucket = world.root / "buckets" / "staging"
    bucket.rename(world.root / "elsewhere")
    world.discover(SOON)
    world.discover(LATER)
    (sentence,) = silent(world, LATER)
    assert sentence.startswith(
        "stream events cannot be listed at s3://staging/events/ since 2026-03-01 12:10Z: bucket staging does not exist:"
    )
    assert not check(world, SILENT_STREAMS, SOON).passed
    assert [finding.kind for finding in run_doctor(world.context).findings] == ["silent_stream"]
    (world.root / "elsewhere").rename(bucket)
    world.discover(LATER)
    assert silent(world, LATER) == []
    assert check(world, SILENT_STREAMS, LATER).passed


def test_objects_that_are_all_left_out_are_told_with_the_reason(world: World) -> None:
    world.apply(a_table())
    world.drop([], stream="events/_temporary", body=b"x")
    world.discover(NOON)
    (sentence,) = silent(world, LATER)
    assert "since 2026-03-01 12:00Z, 1 object left out (1 with a name that begins with _ or .). Correct" in sentence


def test_streams_that_are_stopped_or_discarded_are_meant_to_be_silent(world: World) -> None:
    stopped = a_table().replace('/events/"}', '/events/", enabled: false}')
    discarded = a_table("log.more").replace('/more/"}', '/more/", discard: true}')
    world.apply(stopped, discarded)
    world.discover(NOON)
    assert silent(world, LATER) == []
    assert run_doctor(world.context).is_clean
