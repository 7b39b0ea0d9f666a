"""Objects with too many rows for memory: sorted runs on disk give the same bytes, and leave no file."""

from __future__ import annotations

import gzip
import io
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.kernels import inflate
from prism_assets.kernels.convert import convert_object
from prism_assets.kernels.json.accept import Accepted
from prism_assets.kernels.parquet.accepted_rows import AcceptedRows, Limits
from prism_assets.kernels.parquet.sorted_runs import SortedRuns, payload
from prism_assets.kernels.parquet.sorting import order_of
from prism_assets.kernels.reading import facts_of
from prism_assets.kernels.typed import Layout
from prism_assets_tests.kernels.builders import Lake, a_column, a_convert_task, a_table, a_value, an_object

LITTLE = Limits(rows=20_000, piece=700, portion=3_000, quarantine=500)
COLUMNS = (
    a_column("v", "string", 2),
    a_column("n", "bigint", 3),
    a_column("x", "double", 4),
    a_column("flag", "boolean", 5),
    a_column("exact", "decimal", 6, precision=9, scale=2),
    a_column("day", "date", 7),
    a_column("payload", "json", 8),
)


def a_row(draw: random.Random, number: int) -> dict[str, Any]:
    return {
        "time": f"2018-10-2{draw.randrange(2, 5)}T0{draw.randrange(3)}:00:0{draw.randrange(10)}Z",
        "v": draw.choice([None, "日本", "é", "e", "", "x" * draw.randrange(40)]),
        "n": number,
        "x": draw.choice([None, -0.0, 0.0, 1.5]),
        "flag": draw.choice([None, True, False]),
        "exact": draw.choice([None, 1.25, -3]),
        "day": draw.choice([None, "2018-10-24"]),
        "payload": {"a": number % 7},
    }


def many_lines(count: int = 3_000, seed: int = 5) -> bytes:
    draw = random.Random(seed)
    return an_object(*(a_row(draw, number) if number % 50 else f"bad {number}" for number in range(count)))


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The temporary files created."""
    made: list[Any] = []
    make = tempfile.TemporaryFile

    def noting(*args: Any, **more: Any) -> Any:
        made.append(make(*args, **more))
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", noting)
    return made


@pytest.mark.parametrize("sort_by", [(), ("v",), ("flag", "x"), ("exact", "day", "v")], ids=str)
def test_runs_on_disk_give_the_bytes_that_memory_gives(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, files: list[Any], sort_by: tuple[str, ...]
) -> None:
    table = a_table(*COLUMNS, sort_by=sort_by)
    monkeypatch.setattr(inflate, "PIECE", 20_000)
    in_memory = lake.convert(many_lines(), table)
    assert (len(in_memory.result.objects), in_memory.reasons, files) == (3, {"bad_json": 60}, [])
    # Each of the three days is below the limit, so its rows are one row group either way.
    on_disk = lake.convert(many_lines(), table, limits=Limits(rows=100_000, piece=700, portion=3_000, quarantine=100))
    assert len(files) == 1 + 3 + 1
    assert on_disk.comparable() == in_memory.comparable()
    in_many_groups = lake.convert(many_lines(), table, limits=LITTLE)
    assert (in_many_groups.rows, in_many_groups.quarantined) == (in_memory.rows, in_memory.quarantined)
    body = in_many_groups.stored[in_many_groups.result.objects[0].key]
    assert pq.ParquetFile(io.BytesIO(body)).metadata.num_row_groups > 1


def test_attempts_that_go_to_disk_give_the_same_bytes_however_the_object_arrives(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "PIECE", 20_000)
    table = a_table(*COLUMNS, sort_by=("v",))
    first = lake.convert(many_lines(), table, limits=LITTLE)
    for part in (100, 77_777):
        monkeypatch.setattr("prism_assets.objectstore.stores.PART", part)
        assert lake.convert(many_lines(), table, limits=LITTLE).comparable() == first.comparable()
        zipped = lake.convert(gzip.compress(many_lines()), table, limits=LITTLE)
        assert zipped.comparable() == first.comparable()


def test_rows_whose_sort_columns_tie_stay_in_the_order_of_their_lines(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "PIECE", 5_000)
    day = a_column("day", "date", 1, required=True)
    table = a_table(columns=(day, a_column("n", "bigint", 2)), partition_column="day")
    content = an_object(*(f'{{"day":"2018-10-24","n":{number}}}' for number in range(5_000)))
    outcome = lake.convert(content, table, limits=LITTLE)
    assert [row["n"] for row in outcome.rows] == list(range(5_000))


KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", "\u00e9", "\ufffd", "\U0001f600", "ab"]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), KEYS), min_size=1, max_size=30), min_size=1),
    st.integers(1, 60),
    st.integers(1, 300),
)
def test_portions_are_the_sorted_rows_and_of_bounded_size(
    drawn: list[list[tuple[int, int, str | None]]], piece: int, portion: int
) -> None:
    schema = pa.schema([("time", pa.timestamp("ms", "UTC")), ("v", pa.string()), ("n", pa.int64())])
    runs = SortedRuns(schema, ["time", "v"], piece_bytes=piece, portion_bytes=portion)
    tables, line = [], 0
    for rows in drawn:
        numbers = list(range(line, line + len(rows)))
        line += len(rows)
        columns = [
            pa.array([time for _, time, _ in rows], schema[0].type),
            pa.array([v for *_, v in rows], pa.string()),
        ]
        tables.append((pa.table([*columns, pa.array(numbers)], schema=schema), [day for day, *_ in rows], numbers))
        runs.write(tables[-1][0], *map(_int_array, tables[-1][1:]))
    whole = pa.concat_tables([table for table, _, _ in tables])
    days = _int_array([day for _, found, _ in tables for day in found])
    biggest = max(row.nbytes for row in (whole.slice(at, 1) for at in range(line))) + 64
    for day in runs.days():
        positions = (days == day).nonzero()[0]
        expected = whole.take(positions[order_of(whole, positions, ["time", "v"], positions)])
        portions = list(runs.portions(day))
        assert pa.concat_tables(portions).equals(expected)
        assert max(payload(rows.columns) for rows in portions) <= portion + (len(drawn) + 1) * (piece + biggest)
    runs.close()


def _int_array(numbers: list[int]) -> Any:
    return pa.array(numbers, pa.int64()).to_numpy()


def a_full_disk(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fault", ["none", "damage", "a store that takes nothing"])
def test_no_temporary_file_is_left_whatever_happens(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, files: list[Any], fault: str, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(inflate, "PIECE", 20_000)
    content = gzip.compress(many_lines())
    if fault == "a store that takes nothing":
        (lake.root / "lake" / "p").write_text("no folder")
    outcome = lake.convert(content[:-9] if fault == "damage" else content, a_table(*COLUMNS), limits=LITTLE)
    assert (outcome.result.failure is None) == (fault != "a store that takes nothing")
    assert len(files) > 1
    assert all(file.closed for file in files)
    assert list(scratch.iterdir()) == []


def test_a_full_disk_is_a_failure_of_nobody_that_says_what_to_do(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "PIECE", 20_000)
    monkeypatch.setattr(tempfile, "TemporaryFile", a_full_disk)
    failure = lake.convert(many_lines(), a_table(*COLUMNS), limits=LITTLE).result.failure
    assert failure is not None
    assert (failure.transient, failure.at_source) == (True, False)
    assert "No space left on device" in failure.message
    assert "set TMPDIR where tasks run" in failure.message


def test_an_object_with_much_in_quarantine_keeps_it_on_disk(lake: Lake) -> None:
    draw = random.Random(3)
    lines = [f"bad {draw.randbytes(30).hex()}" for _ in range(500)]
    outcome = lake.convert(an_object(*lines, a_value("1")), a_table(*COLUMNS), limits=LITTLE)
    assert [record["text"] for record in outcome.quarantined] == lines
    assert outcome.result.lines_in == 501


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Arrow's memory pool during a test, for the peak allocation."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def test_what_is_held_at_one_time_does_not_grow_with_the_object(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, pool: pa.MemoryPool
) -> None:
    monkeypatch.setattr(inflate, "PIECE", 100_000)
    table = a_table(a_column("v", "string", 2))
    limits = Limits(rows=500_000, piece=20_000, portion=100_000)
    most = {}
    for lines in (10_000, 80_000):
        content = an_object(*(a_value(f'"{number:0200}"') for number in range(lines)))
        task = a_convert_task(lines, content_length=len(content))
        lake.stores.put("staging", task.key, content)
        result = convert_object(task, table, lake.stores, lake.lake, limits=limits)
        most[lines] = pool.max_memory()
        assert result.rows_out == lines
    assert most[80_000] < 1.5 * most[10_000] < 80_000 * 200


def test_one_row_group_is_in_memory_at_a_time() -> None:
    """The rows that a group was made of are gone, and the group itself when the next one is made."""
    table = a_table(a_column("v", "string", 2))
    layout = Layout.of(table, facts_of(a_convert_task()))
    rows = AcceptedRows(layout, Limits(rows=8 << 20, piece=1 << 18, portion=1 << 20))
    draw = random.Random(1)
    for block in range(40):
        numbers = np.arange(100) + 100 * block
        times = pa.array(numbers, pa.timestamp("ms", "UTC"))
        values = pa.array([draw.randbytes(5_000).hex() for _ in numbers])
        rows.add(Accepted(numbers, np.zeros(100, np.int32), [times, values], Counter()))
        rows.settle()
    (day,) = rows.by_day()
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for group in day.row_groups:
        most = max(most, pa.total_allocated_bytes() - before)
        count += group.num_rows
        del group
    rows.close()
    assert count == 4_000
    assert most < 14 << 20, f"{most / (1 << 20):.1f} MiB at once"


def test_rows_in_order_are_not_copied_and_give_the_bytes_that_they_give_in_any_order(lake: Lake) -> None:
    draw = random.Random(5)
    rows = [
        a_row(draw, number) | {"time": f"2018-10-2{2 + number // 400}T00:{number % 400 // 60:02}:{number % 60:02}Z"}
        for number in range(800)
    ]
    table = a_table(*COLUMNS)
    in_order = lake.convert(an_object(*rows), table)
    assert [written.row_count for written in in_order.result.objects] == [400, 400]
    draw.shuffle(rows)
    assert lake.convert(an_object(*rows), table).stored == in_order.stored
