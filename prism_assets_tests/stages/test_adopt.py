"""An installation of the published design is audited and taken over, and loses and doubles no row.

Its tables have the names and columns of https://github.com/cookpad/prism, in db/ and in the statements of shared/.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.names import TableName
from prism_assets.metadata.database import Database
from prism_assets.stages.adopt import audit
from prism_assets.stages.adopt.audit import Installation, run_audit
from prism_assets.stages.adopt.tables import write_tables
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.history.run import run_history
from prism_assets_tests.builders import as_lines, some_rows, utc, zipped
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

SCHEMA = """
CREATE TABLE prism_tables (prism_table_id serial PRIMARY KEY, schema_name varchar(128), table_name varchar(128),
    merge_interval integer DEFAULT 43200, create_time timestamp DEFAULT now(), physical_schema_name varchar(128),
    physical_table_name varchar(128));
CREATE TABLE prism_staging_objects (prism_staging_object_id bigserial PRIMARY KEY, bucket_name varchar(63),
    object_key varchar(512), send_time timestamp, first_receive_time timestamp);
CREATE TABLE prism_unknown_staging_objects (prism_unknown_staging_object_id bigserial PRIMARY KEY,
    bucket_name varchar(63), object_key varchar(512), send_time timestamp, first_receive_time timestamp,
    message varchar(256));
CREATE TABLE prism_partitions (prism_partition_id bigserial PRIMARY KEY, prism_table_id integer, partition_date date,
    current_manifest_version bigint DEFAULT -1, ongoing_manifest_version bigint DEFAULT -1,
    desired_manifest_version bigint DEFAULT 0, last_live_object_id bigint, switched boolean DEFAULT false);
CREATE TABLE prism_small_objects (prism_small_object_id bigserial PRIMARY KEY, prism_staging_object_id bigint,
    prism_partition_id bigint, delayed boolean, content_length bigint, upload_start_time timestamp);
CREATE TABLE prism_merge_jobs (prism_merge_job_id bigserial PRIMARY KEY, prism_partition_id bigint,
    schedule_time timestamp, ongoing_mark bigint, heartbeat_time timestamp);
CREATE TABLE prism_merge_ranges (prism_merge_range_id bigserial PRIMARY KEY, prism_partition_id bigint,
    lower_bound bigint, upper_bound bigint, content_length bigint, create_time timestamp, update_time timestamp);
CREATE TABLE prism_tables_strload_streams (prism_table_id integer, stream_id integer);
CREATE TABLE strload_tables (table_id serial PRIMARY KEY, s3_bucket text, s3_prefix text);
CREATE TABLE strload_streams (stream_id serial PRIMARY KEY, table_id integer, stream_name text,
    disabled boolean DEFAULT false, discard boolean DEFAULT false, no_dispatch boolean DEFAULT false,
    initialized boolean DEFAULT true, column_initialized boolean DEFAULT true, create_time timestamp DEFAULT now());
CREATE TABLE strload_columns (column_id serial PRIMARY KEY, stream_id integer, column_name text, source_name text,
    value_type text, value_length integer, source_offset text, zone_offset text, create_time timestamp DEFAULT now(),
    partition_source boolean DEFAULT false);
"""
FOLDER = "1a2b.log.events"
# A day switched to the merged object of its two small objects, and an open day with one.
ROWS = f"""
INSERT INTO prism_tables VALUES (1, 'log', 'events', 3600);
INSERT INTO strload_tables VALUES (1, 'staging', '{FOLDER}/queue');
INSERT INTO strload_streams (stream_id, table_id, stream_name) VALUES (1, 1, 'log.events');
INSERT INTO prism_tables_strload_streams VALUES (1, 1);
INSERT INTO strload_columns (column_id, stream_id, column_name, source_name, value_type, value_length, source_offset,
    zone_offset, partition_source)
    VALUES (1, 1, 'time', 'jst_time', 'timestamp', NULL, '+00:00', '+09:00', true), (2, 1, 'id', NULL, 'bigint', NULL,
    NULL, NULL, false), (3, 1, 'name', NULL, 'string', 40, NULL, NULL, false), (4, 1, 'born', NULL, 'date', NULL,
    NULL, NULL, false), (5, 1, 'odd', NULL, 'unknown', NULL, NULL, NULL, false);
INSERT INTO prism_staging_objects SELECT n, 'staging', format('{FOLDER}/2026/02/%s/%s.gz',
    CASE WHEN n < 3 THEN '01' ELSE '02' END, n), now(), now() FROM generate_series(1, 3) n;
INSERT INTO prism_partitions VALUES (1, 1, '2026-02-01', 2, -1, 2, 2, true),
    (2, 1, '2026-02-02', 0, -1, 0, NULL, false);
INSERT INTO prism_small_objects SELECT n, n, CASE WHEN n < 3 THEN 1 ELSE 2 END, false, 5, '2026-02-02 00:00'
    FROM generate_series(1, 3) n;
INSERT INTO prism_merge_ranges VALUES (1, 1, NULL, 0, 0, now(), '2026-02-02 01:00'),
    (2, 1, 0, 2, 9, now(), '2026-02-02 01:00');
"""


def parquet(ids: list[int]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ids}), sink)
    return sink.getvalue()


@dataclass
class Former:
    """The former installation, and the new one beside it."""

    world: World
    old: Installation
    root: Path
    keys: TableKeys
    ids: list[int]
    """Of all rows in its staging objects."""

    def change(self, *statements: str) -> None:
        with self.old.database.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def put(self, key: str, body: bytes) -> Path:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        return path

    def put_manifest(self, *entries: tuple[str, int]) -> None:
        """Publishes the day of the merged object."""
        files = [
            {"url": f"s3://former/{key}", "mandatory": True, "meta": {"content_length": length}}
            for key, length in entries
        ]
        self.put(self.manifest, json.dumps({"entries": files}).encode())

    @property
    def manifest(self) -> str:
        return self.keys.manifest(date(2026, 2, 1), 2, 2)

    def read(self) -> list[int]:
        """Returns what a reader of the former tables sees: a day by its manifest, and one by its live folder."""
        entries = json.loads((self.root / self.manifest).read_bytes())["entries"]
        paths = [self.root / entry["url"].removeprefix("s3://former/") for entry in entries]
        assert [path.stat().st_size for path in paths] == [entry["meta"]["content_length"] for entry in entries]
        paths += (self.root / self.keys.live_prefix(date(2026, 2, 2))).iterdir()
        return sorted(pa.concat_tables(map(pq.read_table, paths))["id"].to_pylist())

    def kinds(self) -> set[tuple[str | None, str]]:
        return {(item.invariant, item.kind) for item in run_audit(self.world.context, self.old).findings}


@pytest.fixture
def former(world: World, postgres: PostgresServer) -> Iterator[Former]:
    """An installation without a fault: its database, its lake, and staging objects of two days."""
    url = postgres.create_database()
    database = Database(url)
    root = world.root / "buckets" / "former"
    keys = TableKeys(bucket="former", prefix="prism/", name=TableName("log", "events"))
    made = Former(world, Installation(database=database, bucket="former", prefix="prism/"), root, keys, [])
    made.change("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", SCHEMA, ROWS)
    written: dict[str, list[int]] = {"01": [], "02": []}
    for number, day in ((1, "01"), (2, "01"), (3, "02")):
        rows = some_rows(4, utc(f"2026-02-{day}T03:00"))
        made.ids += [row["id"] for row in rows]
        written[day] += [row["id"] for row in rows]
        lines = as_lines([{**row, "jst_time": row["time"]} for row in rows])
        path = world.root / "buckets" / "staging" / f"{FOLDER}/2026/02/{day}/{number}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zipped(lines))
    merged, live = keys.merged_object(date(2026, 2, 1), 0, 2), keys.small_object(date(2026, 2, 2), 3, delayed=False)
    lengths = [len(made.put(key, parquet(written[day])).read_bytes()) for key, day in ((merged, "01"), (live, "02"))]
    made.change(
        f"UPDATE prism_merge_ranges SET content_length = {lengths[0]} WHERE lower_bound = 0",
        f"UPDATE prism_small_objects SET content_length = {lengths[1]} WHERE prism_small_object_id = 3",
    )
    made.put_manifest((merged, lengths[0]))
    try:
        yield made
    finally:
        database.dispose()
        postgres.drop_database(url)


def test_nothing_is_found_where_nothing_is_wrong(former: Former) -> None:
    report = run_audit(former.world.context, former.old)
    assert report.findings == ()
    assert report.describe() == "1 table, 2 days, 2 objects: nothing found"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE prism_partitions SET last_live_object_id = 1 WHERE switched", ("I3", "live_behind_close")),
        ("UPDATE prism_small_objects SET upload_start_time = '2026-02-09' WHERE prism_small_object_id = 2",
         ("I1", "late_in_range")),
        ("UPDATE prism_merge_ranges SET lower_bound = 1 WHERE lower_bound = 0", ("I5", "broken_chain")),
        ("UPDATE prism_small_objects SET content_length = 6 WHERE prism_small_object_id = 3", ("I4", "wrong_length")),
        ("INSERT INTO prism_small_objects VALUES (4, 4, 2, true, 5, now())", ("I1", "missing_object")),
        ("DELETE FROM prism_small_objects WHERE prism_small_object_id = 3", ("I3", "live_without_record")),
        ("DELETE FROM prism_small_objects WHERE prism_small_object_id = 3", ("I1", "object_without_rows")),
        ("INSERT INTO prism_unknown_staging_objects VALUES (1, 'staging', 'x')", ("I1", "unknown_objects")),
    ],
)  # fmt: skip
def test_faults_that_lose_hide_or_double_rows_are_found(
    former: Former, statement: str, expected: tuple[str, str]
) -> None:
    former.change(statement)
    assert expected in former.kinds()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (None, ("I4", "missing_manifest")),
        ([(0, 2, 1)], ("I4", "broken_manifest")),
        ([(0, 2, 0), (0, 2, 0)], ("I2", "doubled_rows")),
        ([(0, 1, 0)], ("I1", "gap_in_manifest")),
        ([(1, 2, 0)], ("I1", "gap_in_manifest")),
        ([(0, 2, 0), (1, 2, 0)], ("I2", "doubled_rows")),
    ],
)
def test_faults_of_the_manifest_of_a_day_are_found(
    former: Former, entries: list[tuple[int, int, int]] | None, expected: tuple[str, str]
) -> None:
    """Each entry has the bounds of a merged object, and by how much its length is wrong."""
    if entries is None:
        (former.root / former.manifest).unlink()
    else:
        body, listed = parquet([1]), list[tuple[str, int]]()
        for lower, upper, wrong in entries:
            key = former.keys.merged_object(date(2026, 2, 1), lower, upper)
            if not (former.root / key).exists():
                former.put(key, body)
            listed.append((key, (former.root / key).stat().st_size + wrong))
        former.put_manifest(*listed)
    assert expected in former.kinds()


def test_a_manifest_that_is_no_json_is_told(former: Former) -> None:
    former.put(former.manifest, b"{")
    assert ("I4", "broken_manifest") in former.kinds()


def test_a_database_of_another_kind_is_refused(former: Former) -> None:
    other = Installation(database=former.world.context.database, bucket="former", prefix="")
    with pytest.raises(WrongUse, match="it lacks prism_tables_strload_streams, strload_tables"):
        run_audit(former.world.context, other)


def test_table_files_have_the_streams_and_columns_of_the_loader(former: Former, tmp_path: Path) -> None:
    (written,) = write_tables(former.old, tmp_path / "tables", since=date(2026, 2, 2))
    text = Path(written.path).read_text()
    assert '  - {name: "log.events", url: "s3://staging/1a2b.log.events/", since: "2026-02-02"}\n' in text
    assert "partition: {column: time, timezone: Asia/Tokyo}\n" in text
    assert '{name: time, type: timestamp, source: jst_time, source_offset: "+00:00", required: true}' in text
    assert "{name: name, type: string, length: 40}" in text
    assert "{name: born, type: string, length: 10}" in text
    assert "timestamps: milliseconds" in text
    assert "merge: {interval: 3600}" in text
    assert written.notes == ("column odd of type unknown is left out, as in the former table",)
    with pytest.raises(WrongUse, match="nothing was written"):
        write_tables(former.old, tmp_path / "tables")


def test_a_takeover_loses_and_doubles_no_row_and_changes_nothing_of_the_former_lake(
    former: Former, tmp_path: Path
) -> None:
    """First side by side from a day on, then with the history before it. Former readers see all rows at each step."""
    world, folder = former.world, tmp_path / "tables"
    assert former.read() == sorted(former.ids)
    before = {path: path.read_bytes() for path in former.root.rglob("*") if path.is_file()}
    write_tables(former.old, folder, since=date(2026, 2, 2))
    run_apply(world.context, folder, utc("2026-02-02T12:00"))
    world.stream("2026-02-02T12:00")
    world.catalog("2026-02-02T12:00")
    assert world.ids() == sorted(former.ids)[8:]
    assert former.read() == sorted(former.ids)
    report = run_history(
        world.context,
        "log.events",
        first=date(2026, 2, 1),
        clock=lambda: utc("2026-02-03T12:00"),
        patience_seconds=0.0,
    )
    assert (report.registered, report.errors) == (2, ())
    world.catalog("2026-02-03T12:00")
    assert world.ids() == sorted(former.ids)
    assert former.read() == sorted(former.ids)
    assert {path: path.read_bytes() for path in former.root.rglob("*") if path.is_file()} == before
    assert run_audit(world.context, former.old).findings == ()


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DROP TABLE strload_columns", "it lacks strload_columns"),
        ("ALTER TABLE strload_columns DROP COLUMN zone_offset", "it lacks strload_columns.zone_offset"),
        ("UPDATE prism_tables SET table_name = NULL", "prism_tables: table_name is NULL in the row (1, log, None"),
        ("UPDATE strload_tables SET s3_prefix = NULL", "streams of prism_table_id 1: prefix is NULL"),
        ("UPDATE strload_columns SET value_type = NULL", "columns of prism_table_id 1: type is NULL"),
    ],
)
def test_a_database_of_another_version_or_with_holes_is_refused(
    former: Former, statement: str, sentence: str, tmp_path: Path
) -> None:
    former.change(statement)
    with pytest.raises(WrongUse) as refused:
        run_audit(former.world.context, former.old)
    assert sentence in str(refused.value)
    with pytest.raises(WrongUse, match=re.escape(sentence)):
        write_tables(former.old, tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_rows_that_name_no_object_are_found_and_the_audit_goes_on(former: Former) -> None:
    former.change(
        "UPDATE prism_small_objects SET prism_staging_object_id = NULL, delayed = NULL WHERE prism_small_object_id = 3",
        "INSERT INTO prism_partitions VALUES (3, 1, NULL, 0, -1, 0, NULL, NULL)",
        "UPDATE prism_merge_ranges SET content_length = NULL, update_time = NULL",
        "UPDATE strload_streams SET discard = NULL, disabled = NULL",
    )
    assert former.kinds() >= {("I1", "rows_without_name"), ("I3", "live_without_record"), ("I4", "wrong_length")}


@pytest.mark.parametrize("name", ["../../etc/cron", "events/other", "Events", "a b", "x" * 65])
def test_a_name_that_leads_to_another_folder_is_refused(former: Former, name: str, tmp_path: Path) -> None:
    former.change(f"UPDATE prism_tables SET table_name = '{name}'")
    with pytest.raises(WrongUse, match="must begin with a-z"):
        write_tables(former.old, tmp_path / "deep" / "er")
    assert not (tmp_path / "deep").exists()
    with pytest.raises(WrongUse, match="must begin with a-z"):
        run_audit(former.world.context, former.old)


def test_texts_of_the_database_stay_texts_in_the_table_file(former: Former, tmp_path: Path) -> None:
    former.change(
        "UPDATE strload_columns SET value_type = E'odd\\nretired: true' WHERE column_name = 'odd'",
        "UPDATE strload_columns SET source_offset = '+00:00\", required: false' WHERE column_name = 'time'",
    )
    (written,) = write_tables(former.old, tmp_path)
    document = yaml.safe_load(Path(written.path).read_text())
    assert "retired" not in document
    assert document["columns"][0]["source_offset"] == '+00:00", required: false'
    assert document["columns"][0]["required"] is True


def test_a_day_is_compared_a_part_at_a_time(former: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects on record, missing ones and unknown ones are found at and between the ends of parts."""
    monkeypatch.setattr(audit, "_PART", 2)
    keys = TableKeys(bucket="former", prefix="prism/", name=TableName("log", "events"))
    former.change("INSERT INTO prism_small_objects SELECT n, n, 2, n = 8, 5, now() FROM generate_series(5, 10) n")
    for number in (1, 5, 6, 7, 8, 9, 11):
        former.put(
            keys.small_object(date(2026, 2, 2), number, delayed=number == 8), b"small"[: 4 if number == 6 else 5]
        )
    found = {item.kind: item for item in run_audit(former.world.context, former.old).findings}
    assert {kind: found[kind].count for kind in ("missing_object", "wrong_length", "live_without_record")} == {
        "missing_object": 1,
        "wrong_length": 1,
        "live_without_record": 2,
    }
    assert keys.small_object(date(2026, 2, 2), 10, delayed=False) in found["missing_object"].says
    assert keys.small_object(date(2026, 2, 2), 6, delayed=False) in found["wrong_length"].says
    assert keys.small_object(date(2026, 2, 2), 1, delayed=False) in found["live_without_record"].says
