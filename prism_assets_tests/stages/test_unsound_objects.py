"""Compressed objects with bytes after their last member: what PostgreSQL records and people see."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
import zstandard

from prism_assets.metadata.intake.quarantine import QuarantineFilter, list_quarantine
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
LINES = as_lines(some_rows(5, utc(NOON)))


def ledger(world: World) -> list[Any]:
    statement = "SELECT state, lines_in, rows_out, rows_quarantined FROM prism_staging_objects"
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def quarantine(world: World) -> list[tuple[str, int]]:
    with world.context.database.begin() as connection:
        return [(row.reason, row.line_count) for row in list_quarantine(connection, QuarantineFilter(limit=9))]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize(
    ("behind", "lines", "reason"),
    [(b"plain text\n", 6, ("trailing_garbage", 1)), (bytes(512), 5, ("zero_padding", 0))],
    ids=["text", "zeros"],
)
def test_rows_stay_and_what_is_behind_them_is_in_the_ledger(
    world: World, compress: Any, behind: bytes, lines: int, reason: tuple[str, int]
) -> None:
    world.apply(a_table())
    world.drop([], body=compress(LINES) + behind)
    report = world.stream(NOON)
    world.catalog(NOON)
    assert (report.lines_in, report.rows_out, report.quarantined, report.errors) == (lines, 5, lines - 5, ())
    assert ledger(world) == [("done", lines, 5, lines - 5)]
    assert quarantine(world) == [reason]
    assert len(world.ids()) == 5


def test_a_member_whose_magic_number_is_damaged_can_be_got_back_from_quarantine(world: World) -> None:
    world.apply(a_table())
    member = gzip.compress(LINES)
    world.drop([], body=member + b"\x00" + member[1:])
    world.stream(NOON)
    assert quarantine(world) == [("trailing_garbage", 1)]
    (kept,) = [item.key for item in world.context.stores.list("lake", "") if "/quarantine/" in item.key]
    (record,) = map(json.loads, gzip.decompress(world.context.stores.get("lake", kept)).splitlines())
    assert record["offset"] == len(member)
    assert gzip.decompress(member[:1] + base64.b64decode(record["base64"])[1:]) == LINES
