"""The rows of a merge, joined once or in windows, give the bytes of a merge that decodes input by input."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from prism_assets.domain.files.data_file import DataFile, SmallObject
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels import write
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.parquet import merged_rows
from prism_assets.kernels.parquet.format import MERGED_SAMPLE, Encoder, dictionary_columns
from prism_assets.kernels.parquet.merge_inputs import Input, aligned, union_schema
from prism_assets.kernels.parquet.sorting import sort_keys, sorted_positions
from prism_assets.kernels.requirement import SWITCH
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object

OLD = a_table(
    a_column("was", "string", 2),
    a_column("n", "integer", 3),
    a_column("dropped", "string", 4),
    a_column("key", "string", 5),
    a_column("x", "real", 6),
    sort_by=("time", "was"),
)
NEW = a_table(
    a_column("now", "string", 2, source="was"),
    a_column("n", "bigint", 3),
    a_column("key", "string", 5),
    a_column("x", "double", 6),
    a_column("flag", "boolean", 7),
    a_column("exact", "decimal", 8, precision=9, scale=2),
    a_column("day", "date", 9),
    a_column("payload", "json", 10),
    sort_by=("time", "now"),
)
BUDGETS = pytest.mark.parametrize("budget", [1, 60_000, 1 << 30], ids=["one group a window", "windows", "joined once"])


def rows_of_one_object(draw: random.Random, count: int, hours: range) -> list[dict[str, Any]]:
    """Rows with few times, texts that repeat and texts that do not, nulls, and one late row."""
    texts = draw.choice([["a", "é", "日本", "", "x" * 300], [f"t{n}" for n in range(5_000)]])

    def some(value: Any) -> Any:
        return draw.choice([None, value, value, value])

    return [
        {
            "time": f"2018-10-24T{0 if row == 7 else draw.choice(hours):02}:00:{draw.randrange(20):02}Z",
            "was": some(draw.choice(texts)),
            "n": some(draw.randrange(-5, 5)),
            "dropped": some("gone"),
            "key": f"{draw.getrandbits(64):x}",
            "x": some(draw.choice([-0.0, 0.0, 1.5])),
            "flag": some(True),
            "exact": some(-1.25),
            "day": some("2018-10-24"),
            "payload": some({"a": draw.randrange(3)}),
        }
        for row in range(count)
    ]


def objects_of(lake: Lake, seed: int, counts: Sequence[int]) -> list[SmallObject]:
    """Small objects of an hour or two each, under the old or the new definition."""
    draw = random.Random(seed)
    found: list[SmallObject] = []
    for number, count in enumerate(counts):
        content = an_object(*rows_of_one_object(draw, count, range(number, number + 2)))
        table = OLD if number % 3 == 0 else NEW
        found += lake.convert(content, table, staging_object_id=number + 1).result.objects
    return found


def written_input_by_input(lake: Lake, files: Sequence[DataFile], table: TableDefinition, least: int) -> bytes:
    """The specification: cuts each row group of the output from each input, and joins the parts."""
    inputs = [entry for file in files for entry in Input.opened(file, lake.stores.get("lake", file.key))]
    schema = union_schema([entry.schema for entry in inputs], table)
    tables = [aligned(entry.read_all(entry.schema.names), schema) for entry in inputs]
    joined = pa.concat_tables(tables)
    order = sorted_positions([key for name in table.stored_order for key in sort_keys(joined.column(name))])
    starts = np.cumsum([0, *(part.num_rows for part in tables)])
    groups = max(1, len(order) // least)
    encoder: Encoder | None = None
    for start, end in itertools.pairwise(len(order) * number // groups for number in range(groups + 1)):
        wanted = order[start:end]
        owners = np.searchsorted(starts, wanted, side="right") - 1
        by_owner = np.argsort(owners, kind="stable")
        places = np.argsort(by_owner)
        pieces = [tables[n].take(pa.array(wanted[owners == n] - starts[n])) for n in np.unique(owners)]
        rows = pa.concat_tables(pieces).take(pa.array(places)).cast(schema)
        encoder = encoder or Encoder(schema, dictionary_columns(rows, MERGED_SAMPLE), table.file_format)
        encoder.write(rows)
    assert encoder is not None
    return bytes(encoder.finish())


@BUDGETS
@pytest.mark.parametrize("counts", [(2_000, 1_200, 900, 1_500), (40, 1, 0, 3, 0, 25), (1,)], ids=str)
def test_the_bytes_are_those_of_a_merge_input_by_input(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, budget: int, counts: Sequence[int]
) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", 500)
    monkeypatch.setattr(merged_rows, "BUDGET", budget)
    objects = objects_of(lake, 3, counts)
    assert lake.merge(objects, NEW).failure is None
    assert lake.stores.get("lake", "p/merged/out.parquet") == written_input_by_input(lake, objects, NEW, 500)


@BUDGETS
def test_empty_objects_merge_to_an_empty_object(lake: Lake, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(merged_rows, "BUDGET", budget)
    result = lake.merge([], NEW)
    assert result.written is not None
    assert result.written.row_count == 0


def test_a_column_with_a_dictionary_is_measured_by_the_dictionary(lake: Lake) -> None:
    rows = 2_000
    content = an_object(*({"was": "x" * 10_000, "key": f"{number:016x}"} for number in range(rows)))
    (found,) = lake.convert(content, OLD).result.objects
    (entry,) = Input.opened(found, lake.stores.get("lake", found.key))
    schema = union_schema([entry.schema], OLD)
    assert entry.coded_columns() == {2}
    assert entry.read(schema, {2}).nbytes <= entry.decoded_bytes(schema) < 200 * rows < entry.read(schema).nbytes


@BUDGETS
def test_a_dictionary_that_grew_too_big_for_its_input_gives_the_same_bytes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", 1_500)
    monkeypatch.setattr(merged_rows, "BUDGET", budget)
    texts = ["!"] * 1_100 + [f"{number:04}" * 400 for number in range(1_400)]
    objects = [
        entry
        for number in (1, 2)
        for entry in lake.convert(
            an_object(*({"was": text, "key": str(number)} for text in texts)), OLD, staging_object_id=number
        ).result.objects
    ]
    (first, *_) = Input.opened(objects[0], lake.stores.get("lake", objects[0].key))
    assert 2 in first.coded_columns()
    assert first.metadata.row_group(0).column(1).total_uncompressed_size > 2 << 20  # a dictionary ends at 1 MiB
    assert lake.merge(objects, OLD).failure is None
    assert lake.stores.get("lake", "p/merged/out.parquet") == written_input_by_input(lake, objects, OLD, 1_500)


@pytest.fixture
def _without_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Arrow counts only its own memory."""
    monkeypatch.setenv(SWITCH, "off")
    loaded_kernel.cache_clear()
    yield
    loaded_kernel.cache_clear()


@pytest.mark.usefixtures("_without_kernel")
def test_windows_hold_a_part_of_inputs_that_all_overlap(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MERGED_ROW_GROUP", 500)
    objects = [
        entry
        for number in range(12)
        for entry in lake.convert(
            an_object(*({"was": f"{row:04}", "key": f"{row:04}{number:0996}"} for row in range(1_000))),
            OLD,
            staging_object_id=number + 1,
        ).result.objects
    ]
    most = {}
    before = pa.default_memory_pool()
    for budget in (500_000, 1 << 30):
        monkeypatch.setattr(merged_rows, "BUDGET", budget)
        pa.set_memory_pool(counting := pa.proxy_memory_pool(before))
        try:
            assert lake.merge(objects, OLD, f"p/merged/{budget}.parquet").failure is None
        finally:
            pa.set_memory_pool(before)
        most[budget] = counting.max_memory()
    assert most[500_000] < most[1 << 30] / 2
    assert lake.stores.get("lake", "p/merged/500000.parquet") == lake.stores.get("lake", f"p/merged/{1 << 30}.parquet")
