"""Effects of a repair on objects in the plans of DuckLake clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text

from prism_assets.reading.ducklake import session_lines
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.stages.test_repair import encoded_otherwise
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession, StatementFailed
from prism_local.stack import LocalStack


def in_other_bytes(world: World) -> None:
    """All objects and their lengths on record, as if another version of the encoder had written them."""
    for item in list(world.context.stores.list("lake", "")):
        if item.key.endswith(".parquet"):
            body = encoded_otherwise(world.context.stores.get("lake", item.key))
            world.context.stores.put("lake", item.key, body)
            with world.context.database.begin() as connection:
                connection.execute(text("UPDATE prism_small_objects SET content_length = :size"), {"size": len(body)})


def test_an_object_that_was_written_again_in_another_length_is_read_by_new_sessions(
    world: World, lake: LakeOfTest, new_session: Callable[[], DuckDBSession]
) -> None:
    world.apply(a_table())
    world.drop(some_rows(5, utc("2026-03-01T12:00")))
    world.stream("2026-03-01T12:10")
    in_other_bytes(world)
    ids = lake.ids()
    (before,) = lake.sql("SELECT path, file_size_bytes FROM prism_lake.ducklake_data_file")
    for path in (world.root / "buckets" / "lake").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(StatementFailed, match=r"No files found|Cannot open|No such file"):
        lake.ids()
    assert run_repair(world.context).repaired == 1
    (after,) = lake.sql("SELECT path, file_size_bytes FROM prism_lake.ducklake_data_file")
    assert before[0] == after[0]
    assert before[1] != after[1]
    with new_session() as session:
        assert dataclasses.replace(lake, session=session, attached=False).ids() == ids
    with suppress(StatementFailed):  # the reader has parts of the earlier bytes, and never reads other rows
        assert lake.ids() == ids


def test_an_object_of_a_closed_day_has_a_new_path_in_open_sessions_at_once(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    world.drop(some_rows(5, utc("2026-03-01T12:00")))
    world.stream("2026-03-01T12:10")
    world.catalog("2026-03-02T00:10")
    ids = lake.ids()
    (before,) = lake.sql("SELECT path, file_size_bytes FROM prism_lake.ducklake_data_file")
    for path in (world.root / "buckets" / "lake").rglob("*.parquet"):
        path.unlink()
    assert run_repair(world.context).repaired == 1
    (after,) = lake.sql("SELECT path, file_size_bytes FROM prism_lake.ducklake_data_file")
    assert before[0] != after[0]
    assert before[1] == after[1]
    assert lake.ids() == ids


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server, with its keys in the environment."""
    stack = LocalStack(tmp_path / ".prism")
    stack.up(services={"s3"})
    try:
        values = stack.environment()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, values[name])
        yield values["PRISM_S3_ENDPOINT"]
    finally:
        stack.reset()


@pytest.mark.stack
def test_over_s3_another_length_than_recorded_fails_loudly_in_a_new_session(
    world: World,
    services: Mapping[str, str],
    endpoint: str,
    duckdb_session: DuckDBSession,
    new_session: Callable[[], DuckDBSession],
) -> None:
    """Until the new length is recorded. No reader gets other or fewer rows."""
    there = world.in_bucket(endpoint, "prism-lake")
    there.apply(a_table(bucket="prism-staging"))
    there.context.stores.put("prism-staging", "events/1.gz", zipped(as_lines(some_rows(5, utc("2026-03-01T12:00")))))
    there.stream("2026-03-01T12:10")
    settings = there.settings.model_copy(
        update={"ducklake": True, "local_root": None, "s3_endpoint": endpoint, "bucket": "prism-lake"}
    )
    secret = next(line for line in session_lines(settings, with_secrets=True) if line.startswith("CREATE SECRET"))

    def ids() -> list[int]:
        with new_session() as session:
            lake = LakeOfTest(there, session, services["PRISM_DUCKLAKE_URL"])
            session.query(secret)
            return lake.ids()

    sql = LakeOfTest(there, duckdb_session, services["PRISM_DUCKLAKE_URL"]).sql
    found = ids()
    assert len(found) == 5
    (length,) = sql("SELECT content_length FROM prism_small_objects")[0]
    for wrong in (length + 7, length - 7):
        sql(f"UPDATE prism_small_objects SET content_length = {wrong}")
        with pytest.raises(StatementFailed):
            ids()
    sql(f"UPDATE prism_small_objects SET content_length = {length}")
    assert ids() == found
