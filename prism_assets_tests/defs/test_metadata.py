"""Metadata of materialisations: the numbers plotted in the UI, and the picture of a merge."""

from __future__ import annotations

import base64
import re
from datetime import datetime, timedelta, timezone
from xml.etree import ElementTree

import pytest
from dagster import DagsterInstance, MarkdownMetadataValue, TableMetadataValue

from prism_assets.defs.pictures import size_class, sizes_picture
from prism_assets_tests.builders import a_table, as_lines, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_runs import made, run
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOW = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
SVG = "{http://www.w3.org/2000/svg}"
LISTED = "seconds from arrival to readable, "


def drawn(picture: MarkdownMetadataValue) -> ElementTree.Element:
    """Returns the picture inside the markdown, in the only form the UI accepts."""
    match = re.fullmatch(r"!\[[a-z ]+\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", picture.value)
    assert match is not None
    return ElementTree.fromstring(base64.b64decode(match[1]))


def test_a_picture_has_a_bar_a_class_of_sizes() -> None:
    picture = sizes_picture([1_000] * 3 + [50_000] * 2, [128 << 20])
    fills = [item.get("fill") for item in drawn(picture).iter(f"{SVG}rect")]
    assert [fills.count(color) for color in ("#b8b5d9", "#4f43dd")] == [2, 1]
    texts = [item.text for item in drawn(picture).iter(f"{SVG}text")]
    assert {"3", "2", "1", "5 objects", "1 object", "64 Mi"} <= set(texts)


def test_a_picture_of_thousands_of_objects_stays_small() -> None:
    picture = sizes_picture([7**number % (1 << 31) for number in range(5_000)], [128 << 20] * 40)
    assert len(picture.value) < 10_000


def test_a_picture_of_nothing_is_one() -> None:
    assert drawn(sizes_picture([], [])).get("width") == "460"


@pytest.mark.parametrize(
    ("size", "number"),
    [(0, 0), (4_095, 0), (4_096, 1), (16_383, 1), (16_384, 2), (1 << 28, 9), (1 << 40, 9)],
)
def test_classes_grow_fourfold(size: int, number: int) -> None:
    assert size_class(size) == number


def test_a_day_carries_numbers_all_the_way(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(2, NOW))
    events = {name: item.metadata for name, _, item in made(run(instance, location, ["live", "merged", "catalog"]))}
    live, merged, catalog = (events[f"log/events_{part}"] for part in ("live", "merged", "catalog"))
    assert (live["dagster/partition_row_count"].value, live["small objects"].value, live["rows added"].value) == (
        5,
        2,
        5,
    )
    smallest, median = (live[f"{name} small object"].value for name in ("smallest", "median"))
    assert isinstance(smallest, int)
    assert isinstance(median, int)
    assert 0 < smallest <= median
    assert merged["dagster/partition_row_count"].value == 5
    assert catalog["location before"].value == "not in the catalog"
    assert catalog["location after"].value == settled.partition(NOW.date().isoformat()).location
    assert 0 <= float(catalog[f"{LISTED}median"].value) <= float(catalog[f"{LISTED}longest"].value) < 60  # type: ignore[arg-type]


def test_live_tells_how_long_rows_of_an_open_day_took(settled: World, instance: DagsterInstance) -> None:
    """Of its own batches, without rows readable before."""
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    with settled.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET send_time = send_time - interval '1 hour'")
    settled.drop(some_rows(2, NOW))
    ((_, _, item),) = made(run(instance, location, ["live"]))
    told = item.metadata
    assert 0 <= float(told[f"{LISTED}median"].value) <= float(told[f"{LISTED}longest"].value) < 60  # type: ignore[arg-type]


def test_live_tells_of_the_lines_that_became_no_rows(settled: World, instance: DagsterInstance) -> None:
    """By hand also where no line became one."""
    location = a_location(settled.root, a_table() + 'keep: "id > 0"\n')
    told = ["lines read, of all days", "lines quarantined, of all days", "lines filtered, of all days"]
    settled.drop([], body=as_lines([*some_rows(3, NOW), {"time": NOW.isoformat(), "id": 0}]) + b"broken\n")
    ((_, _, live),) = made(run(instance, location, ["live"]))
    assert [live.metadata[name].value for name in told] == [5, 1, 1]
    settled.drop([{"time": NOW.isoformat(), "id": 0}])
    ((_, _, live),) = made(run(instance, location, ["live"]))
    assert [live.metadata[name].value for name in told] == [1, 0, 1]


def test_the_catalog_shows_rows_of_the_newest_day_as_a_table(settled: World, instance: DagsterInstance) -> None:
    columns = ["{name: note, type: string}", "{name: big, type: bigint}"]
    location = a_location(settled.root, a_table(columns=columns))
    day_before = NOW - timedelta(days=1)
    settled.drop([{"time": day_before.isoformat(), "id": 1, "note": "old"}])
    rows = [{"time": NOW.isoformat(), "id": number, "note": "x" * 300, "big": 1 << 62} for number in range(9)]
    settled.drop(rows)
    run(instance, location, ["live"])
    events = {item.partition: item.metadata for _, _, item in made(run(instance, location, ["catalog"]))}
    assert "sample rows" not in events[day_before.date().isoformat()]
    shown = events[NOW.date().isoformat()]["sample rows"]
    assert isinstance(shown, TableMetadataValue)
    assert [column.name for column in shown.schema.columns] == ["time", "id", "note", "big"]
    assert [record.data["id"] for record in shown.records] == [0, 1, 2, 3, 4]
    first = shown.records[0].data
    assert (first["note"], first["big"]) == ("x" * 200 + "…", str(1 << 62))


def test_a_day_that_is_not_the_newest_keeps_no_rows(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    run(instance, location, ["live", "catalog"])
    settled.drop(some_rows(1, NOW - timedelta(days=1)))
    run(instance, location, ["live"])
    events = {item.partition: item.metadata for _, _, item in made(run(instance, location, ["catalog"]))}
    assert "sample rows" not in events[(NOW - timedelta(days=1)).date().isoformat()]


def test_rows_that_cannot_be_read_fail_no_run(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    run(instance, location, ["live"])
    (path,) = (settled.root / "buckets" / "lake").rglob("prism-*.parquet")
    body = path.read_bytes()
    path.write_bytes(bytes(len(body)))
    result = run(instance, location, ["catalog"])
    assert result.success
    ((_, _, item),) = made(result)
    assert "sample rows" not in item.metadata
    assert item.metadata["published rows"].value == 1


def test_no_rows_are_shown_where_that_is_not_wanted(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_SAMPLE_ROWS", "0")
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"])
    ((_, _, item),) = made(run(instance, location, ["catalog"]))
    assert "sample rows" not in item.metadata


def test_rows_of_a_day_that_readers_list_are_readable_with_the_conversion(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    ((_, _, first),) = made(run(instance, location, ["live"]))
    assert f"{LISTED}median" not in first.metadata
    run(instance, location, ["catalog"])
    settled.drop(some_rows(1, NOW))
    ((_, _, second),) = made(run(instance, location, ["live"]))
    seconds = second.metadata[f"{LISTED}longest"].value
    assert isinstance(seconds, float)
    assert 0 <= seconds < 60


def test_a_merge_shows_its_plan_and_a_picture(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(merge="{interval: 0, target_bytes: 1000}"))
    for _ in range(4):
        settled.drop(some_rows(200, NOW))
    run(instance, location, ["live"])
    ((_, _, item),) = made(run(instance, location, ["merged"]))
    assert "write new" in str(item.metadata["plan"].value)
    picture = item.metadata["object sizes"]
    assert isinstance(picture, MarkdownMetadataValue)
    assert f"{item.metadata['objects in'].value} objects" in [text.text for text in drawn(picture).iter(f"{SVG}text")]
    assert item.metadata["smallest merged object"].value == item.metadata["smallest object out"].value
