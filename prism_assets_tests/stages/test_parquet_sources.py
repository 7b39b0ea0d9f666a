"""Objects of Parquet, as Firehose and Hive write them: their rows are rows of a table, once each, with a ledger."""

from __future__ import annotations

import io
import re
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.drafting.draft import draft_file
from prism_assets.drafting.trial import read_table, try_table
from prism_assets.objectstore.config import StoreConfig
from prism_assets.stages.history.run import run_history
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
OLD = date(2026, 2, 1)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Returns a file with the instants of the rows as timestamps."""
    typed = [
        {**row, "time": datetime.fromisoformat(row["time"].replace("Z", "+00:00"))} if row.get("time") else row
        for row in rows
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(typed), sink, compression="snappy")
    return sink.getvalue()


def ledger(world: World) -> list[tuple[int, int, int]]:
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT lines_in, rows_out, rows_quarantined FROM prism_staging_objects WHERE state = 'done' ORDER BY 1"
        )
        return [tuple(row) for row in rows]


def a_stream(more: str = "", accept: str = "{from: object}") -> str:
    return a_table(stream=f'url: "s3://staging/events/", format: parquet{more}', accept=accept)


def test_rows_of_parquet_are_rows_and_one_without_a_time_is_quarantined(world: World) -> None:
    world.apply(a_stream(accept="{from: arrival}"))
    rows = some_rows(5, utc(NOON))
    world.drop([], body=parquet([*rows, {**rows[0], "time": None}]))
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == sorted(row["id"] for row in rows)
    assert ledger(world) == [(6, 5, 1)]
    with world.context.database.begin() as connection:
        (kept,) = connection.exec_driver_sql("SELECT reason, line_count FROM prism_quarantine")
    assert kept == ("missing_time", 1)


def test_a_history_of_hive_parquet_comes_in_once(world: World) -> None:
    world.apply(a_stream(', since: "2026-03-01"'))
    rows = some_rows(4, utc("2026-02-01T10:00"))
    for part in (rows[:1], rows[1:]):
        world.drop([], stream=f"events/dt={OLD}", body=parquet(part))
    world.drop([], stream=f"events/dt={OLD}", body=b"no Parquet")
    for _ in range(2):
        run_history(world.context, "log.events", first=OLD, clock=lambda: utc(NOON), patience_seconds=0.0)
    world.catalog(NOON)
    assert world.ids() == sorted(row["id"] for row in rows)
    assert ledger(world) == [(1, 1, 0), (3, 3, 0)]
    with world.context.database.begin() as connection:
        (failed,) = connection.exec_driver_sql("SELECT last_error FROM prism_staging_objects WHERE state <> 'done'")
    assert "it is no sound file of Parquet" in failed[0]


def test_the_day_of_a_hive_folder_is_read_from_the_key(world: World) -> None:
    text = a_stream().replace(
        "columns:\n", "columns:\n  - {name: object, type: string, source: '@object', stored: false}\n", 1
    )
    text = re.sub(
        r"\{name: time, .*\}",
        "{name: time, type: timestamp, value: \"regexp_extract(object, '/dt=([0-9-]+)/', 1)\", required: true}",
        text,
        count=1,
    )
    world.apply(text)
    world.drop([], stream=f"events/dt={OLD}", body=parquet([{"id": 7}]))
    world.stream(NOON)
    world.catalog(NOON)
    assert world.query("SELECT dt, id FROM log.events") == [(OLD, 7)]


def test_a_damaged_sample_is_refused_with_its_sentence(tmp_path: Path) -> None:
    sample = tmp_path / "part-0.snappy.parquet"
    sample.write_bytes(parquet(some_rows(20, utc(NOON)))[:-9])
    nowhere = StoreConfig(local_root="/nowhere")
    with pytest.raises(WrongUse, match=r"part-0\.snappy\.parquet: it is no sound file of Parquet"):
        draft_file(nowhere, "log.events", str(sample), url="s3://staging/events/", folder=None, now=utc(NOON))


def test_a_table_is_drafted_from_a_sample_of_parquet(world: World, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)  # its object is as old as its file
    sample = tmp_path / "part-0.snappy.parquet"
    sample.write_bytes(parquet(some_rows(20, now - timedelta(hours=1))))
    config = world.context.stores.config
    drafted = draft_file(
        config, "log.events", str(sample), url="s3://staging/events/", folder=tmp_path / "drafted", now=now
    )
    assert 'url: "s3://staging/events/", format: parquet}' in drafted.text
    assert "# Drafted from 20 rows, of Parquet, of" in drafted.text
    assert drafted.path is not None
    trial = try_table(config, read_table(drafted.path), str(sample), now=now)
    assert (trial.rows, trial.problem) == (20, None)
    world.apply(drafted.text)
    world.drop([], body=sample.read_bytes())
    world.stream(NOON)
    assert ledger(world) == [(20, 20, 0)]
