"""Merging: no row lost, doubled or out of order, and no object written if the inputs differ from the record."""

from __future__ import annotations

import dataclasses
import io
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from prism_assets.domain.files.data_file import SmallObject, time_bounds
from prism_assets.domain.files.fingerprints import combine
from prism_assets.kernels import write
from prism_assets.kernels.parquet.merge_inputs import Input
from prism_assets.kernels.parquet.merged_rows import MergedRows
from prism_assets.kernels.write import write_object
from prism_assets_tests.kernels.builders import Lake, a_column, a_merge_task, a_table, an_object, rows_of

TABLE = a_table(a_column("v", "string", 2), a_column("n", "bigint", 3))


def a_time(second: float) -> str:
    return f"2018-10-24T{int(second) // 3600:02}:{int(second) // 60 % 60:02}:{second % 60:06.3f}Z"


def small_objects(lake: Lake, count: int, rows: int, seed: int = 1) -> list[SmallObject]:
    """Returns small objects with overlapping times; `n` numbers the rows in the order of the inputs."""
    draw = random.Random(seed)
    objects: list[SmallObject] = []
    for number in range(count):
        lines = [
            {"time": a_time(draw.randrange(3000)), "v": f"v{draw.randrange(9)}", "n": number * rows + row}
            for row in range(rows)
        ]
        objects += lake.convert(an_object(*lines), TABLE, staging_object_id=number + 1).result.objects
    return objects


def merged_rows(lake: Lake, key: str = "p/merged/out.parquet") -> list[dict[str, Any]]:
    return rows_of(lake.stores.get("lake", key))


def as_counter(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


def test_rows_come_out_sorted_and_none_is_lost(lake: Lake) -> None:
    objects = small_objects(lake, 5, 200)
    result = lake.merge(objects, TABLE)
    rows = merged_rows(lake)
    assert result.failure is None
    assert as_counter(rows) == sum((as_counter(merged_rows(lake, entry.key)) for entry in objects), Counter())
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    written = result.written
    assert written is not None
    assert written.row_count == len(rows) == 1000
    assert written.fingerprint == combine(entry.fingerprint for entry in objects)
    assert (written.min_time, written.max_time) == time_bounds(objects)
    assert written.content_length == lake.stores.length("lake", "p/merged/out.parquet")


def test_rows_of_equal_time_stay_in_the_order_of_the_inputs(lake: Lake) -> None:
    lake.merge(small_objects(lake, 5, 200), TABLE)
    rows = merged_rows(lake)
    assert rows == sorted(rows, key=lambda row: (row["time"], row["n"]))


@pytest.mark.parametrize("rows_per_group", [64, 100, 333, 5000])
def test_row_groups_do_not_show_in_the_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch, rows_per_group: int) -> None:
    objects = small_objects(lake, 5, 200)
    lake.merge(objects, TABLE, "p/merged/one.parquet")
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", rows_per_group)
    lake.merge(objects, TABLE, "p/merged/many.parquet")
    assert merged_rows(lake, "p/merged/many.parquet") == merged_rows(lake, "p/merged/one.parquet")
    sizes = row_group_sizes(lake, "p/merged/many.parquet")
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("least", "sizes"),
    [
        (1_001, [1_000]), (1_000, [1_000]), (999, [1_000]), (501, [1_000]), (500, [500, 500]), (499, [500, 500]),
        (333, [333, 333, 334]), (332, [333, 333, 334]),
    ],
)  # fmt: skip
def test_no_row_group_of_an_object_that_has_as_many_rows_is_below_the_least(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, least: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", least)
    lake.merge(small_objects(lake, 5, 200), TABLE)
    assert row_group_sizes(lake, "p/merged/out.parquet") == sizes


def row_group_sizes(lake: Lake, key: str) -> list[int]:
    metadata = pq.ParquetFile(io.BytesIO(lake.stores.get("lake", key))).metadata
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def test_a_merged_object_can_be_extended(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", 100)
    objects = small_objects(lake, 6, 100)
    first = lake.merge(objects[:4], TABLE, "p/merged/first.parquet")
    assert first.written is not None
    lake.merge([first.written, *objects[4:]], TABLE, "p/merged/extended.parquet")
    lake.merge(objects, TABLE, "p/merged/whole.parquet")
    assert merged_rows(lake, "p/merged/extended.parquet") == merged_rows(lake, "p/merged/whole.parquet")


def test_row_groups_of_one_object_are_decoded_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", 100)
    written = lake.merge(small_objects(lake, 6, 100), TABLE).written
    assert written is not None
    inputs = Input.opened(written, lake.stores.get("lake", written.key))
    for _ in range(300):  # with one reader for all of them this process died
        assert len(MergedRows(inputs, inputs[0].schema, ["time", "v", "n"]).order()) == 600


def test_further_columns_sort_within_equal_times(lake: Lake) -> None:
    table = a_table(a_column("v", "string", 2), a_column("n", "double", 3), sort_by=("time", "v", "n"))
    rows = [{"time": a_time(n % 2), "v": [None, "b", "a"][n % 3], "n": [3.5, None, -1][n % 5 % 3]} for n in range(60)]
    objects = [
        entry
        for number, part in enumerate((rows[:30], rows[30:]))
        for entry in lake.convert(an_object(*part), table, staging_object_id=number + 1).result.objects
    ]
    lake.merge(objects, table)
    got = [(row["time"], row["v"] or "~", row["n"] if row["n"] is not None else 9.0) for row in merged_rows(lake)]
    assert got == sorted(got)
    for entry in objects:
        part_rows = [(row["time"], row["v"] or "~", row["n"] is None, row["n"]) for row in merged_rows(lake, entry.key)]
        assert part_rows == sorted(part_rows)


def test_columns_are_united_by_id_and_old_rows_get_nulls(lake: Lake) -> None:
    old = a_table(a_column("was", "string", 2), a_column("dropped", "bigint", 4))
    new = a_table(a_column("now", "string", 2, source="was"), a_column("added", "integer", 3))
    objects = [
        *lake.convert(an_object({"was": "x", "dropped": 1}), old, staging_object_id=1).result.objects,
        *lake.convert(an_object({"was": "y", "added": 2}), new, staging_object_id=2).result.objects,
    ]
    result = lake.merge(objects, new)
    assert result.failure is None
    table = lake.table_at("p/merged/out.parquet")
    assert table.column_names == ["time", "now", "added", "dropped"]
    assert [field.metadata[b"PARQUET:field_id"] for field in table.schema] == [b"1", b"2", b"3", b"4"]
    assert table.select(["now", "added", "dropped"]).to_pylist() == [
        {"now": "x", "added": None, "dropped": 1},
        {"now": "y", "added": 2, "dropped": None},
    ]


def test_a_column_that_was_widened_keeps_its_fingerprint(lake: Lake) -> None:
    narrow, wide = (
        a_table(a_column("n", kind, 2), a_column("x", real, 3), a_column("d", "decimal", 4, precision=digits, scale=2))
        for kind, real, digits in (("integer", "real", 6), ("bigint", "double", 38))
    )
    lines = {"n": -5, "x": 0.1, "d": "-12.34"}, {"n": 6}
    objects = lake.convert(an_object(*lines), narrow).result.objects
    assert lake.merge(objects, wide).failure is None
    first, second = ({name: row[name] for name in "nxd"} for row in merged_rows(lake))
    assert first == {"n": -5, "x": float(np.float32(0.1)), "d": Decimal("-12.34")}
    assert second == {"n": 6, "x": None, "d": None}


def test_an_object_with_narrower_values_is_not_taken_for_one_that_is_wide(lake: Lake) -> None:
    narrow, wide = (a_table(a_column("n", kind, 2)) for kind in ("integer", "bigint"))
    objects = lake.convert(an_object({"n": 1}), narrow).result.objects
    assert lake.merge(objects, narrow).failure is None
    failure = lake.merge(objects, wide).failure
    assert failure is not None
    assert failure.occupied
    assert "other names or types of columns" in failure.message


def test_the_same_inputs_give_the_same_bytes(lake: Lake) -> None:
    objects = small_objects(lake, 3, 50)
    lake.merge(objects, TABLE, "p/merged/one.parquet")
    lake.merge(objects, TABLE, "p/merged/two.parquet")
    assert lake.stores.get("lake", "p/merged/one.parquet") == lake.stores.get("lake", "p/merged/two.parquet")


@pytest.mark.parametrize("field", ["content_length", "row_count", "fingerprint"])
def test_an_input_that_is_not_what_was_recorded_is_refused_by_name(lake: Lake, field: str) -> None:
    objects = small_objects(lake, 3, 20)
    wrong = dataclasses.replace(objects[1], **{field: getattr(objects[1], field) + 1})
    result = lake.merge([objects[0], wrong, objects[2]], TABLE)
    assert result.failure is not None
    assert not result.failure.transient
    assert objects[1].key in result.failure.message
    assert [info.key for info in lake.stores.list("lake", "p/merged/")] == []


def test_an_input_that_is_no_parquet_is_refused(lake: Lake) -> None:
    objects = small_objects(lake, 2, 5)
    lake.stores.put("lake", objects[0].key, b"x" * objects[0].content_length)
    failure = lake.merge(objects, TABLE).failure
    assert failure is not None
    assert objects[0].key in failure.message


def test_a_missing_input_is_a_terminal_failure(lake: Lake) -> None:
    objects = small_objects(lake, 2, 5)
    lake.stores.delete("lake", [objects[0].key])
    failure = lake.merge(objects, TABLE).failure
    assert failure is not None
    assert not failure.transient


def test_a_store_that_is_away_is_a_transient_failure(lake: Lake) -> None:
    task = a_merge_task(small_objects(lake, 1, 5))
    away = type(lake.stores)(
        dataclasses.replace(lake.stores.config, local_root=None, endpoint="http://127.0.0.1:9", retry_seconds=0.1)
    )
    failure = write_object(task, TABLE, away, lake.lake).failure
    assert failure is not None
    assert failure.transient
