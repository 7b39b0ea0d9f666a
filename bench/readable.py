"""Measures when each object became readable, and whether every row is read exactly once in the end."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from types import TracebackType

from sqlalchemy import text

from bench.background import BackgroundThread
from bench.traffic import SCHEMA, Traffic
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.reading.lake_reader import LakeReader, ReadTable
from prism_assets.reading.query import run_query
from prism_assets.stages.context import StageContext

_PAUSE = 2.0
_PUBLISHED = """
SELECT t.table_name FROM prism_partition_states s JOIN prism_tables t ON t.prism_table_id = s.table_id
WHERE s.current_version >= 0
"""
_COMMITTED = """
SELECT o.object_key, extract(epoch FROM max(s.commit_time)) AS seconds
FROM prism_small_objects s JOIN prism_staging_objects o USING (prism_staging_object_id) GROUP BY o.object_key
"""
_COMMITTED_OF = """
SELECT s.prism_staging_object_id FROM prism_small_objects s
JOIN prism_staging_objects o USING (prism_staging_object_id) JOIN prism_tables t ON t.prism_table_id = o.prism_table_id
WHERE t.table_name = :table
"""
_LAKE = """
SELECT coalesce((
    SELECT sum(s.row_count) FROM prism_small_objects s JOIN prism_partitions USING (prism_partition_id)
    JOIN prism_tables t USING (prism_table_id) WHERE t.table_name = :table
), 0), coalesce((
    SELECT sum(f.record_count) FROM prism_lake.ducklake_data_file f JOIN prism_lake.ducklake_table t USING (table_id)
    WHERE t.table_name = :table
), 0)
"""
_LISTED = """
SELECT DISTINCT o.object_key FROM prism_publications q
JOIN prism_small_objects s ON s.prism_partition_id = q.prism_partition_id
    AND s.prism_small_object_id <= q.published_object_id
JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE q.publisher = 'iceberg'
"""


class Watcher(BackgroundThread):
    """Polls from outside, every two seconds, the tables the catalog shows with rows.

    An object counts as readable once it is committed and a catalog reader saw its partition. Both times are
    pessimistic: uploads end before the commit, and polling notices a partition some time after it exists. DuckLake's
    views read the commits themselves, so that an object is readable there at its commit. Each poll also lists one table
    as readers of both do, and checks that it holds all its commits.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__()
        self._context = context
        self._reader = LakeReader(context.settings)
        self._seen: dict[str, float] = {}
        self._listed: dict[int, float] = {}
        self._looks = 0
        self._missing: list[str] = []
        self._error: BaseException | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._error is not None and error is None:
            raise self._error

    @property
    def missing(self) -> list[str]:
        """Sentences about committed objects in shown partitions that readers miss."""
        return list(self._missing)

    def readable(self) -> dict[int, float]:
        """Returns when each object became readable through Glue, by its number."""
        seen = dict(self._seen)
        return {number: max(time, seen[table]) for number, (table, time) in self._commits().items() if table in seen}

    def committed(self) -> dict[int, float]:
        """Returns when each object became readable through DuckLake, by its number."""
        return {number: time for number, (_, time) in self._commits().items()}

    def _commits(self) -> dict[int, tuple[str, float]]:
        """Returns table and time of each object's last commit, by its number."""
        with self._context.database.begin() as connection:
            rows = connection.execute(text(_COMMITTED)).all()
        found = {}
        for key, seconds in rows:
            table, _, name = key.partition("/")
            found[int(name.split(".")[0])] = table, float(seconds)
        return found

    def listed(self) -> dict[int, float]:
        """Returns when each object first appeared in its Iceberg table's head, by its number."""
        return dict(self._listed)

    def _run(self) -> None:
        try:
            while not self._ended.wait(_PAUSE):
                self._poll()
        except BaseException as error:
            self._error = error

    def _poll(self) -> None:
        with self._context.database.begin() as connection:
            published = set(connection.execute(text(_PUBLISHED)).scalars())
            listed = connection.execute(text(_LISTED)).scalars().all()
        now = time.time()
        for key in listed:
            self._listed.setdefault(int(key.partition("/")[2].split(".")[0]), now)
        for table in sorted(published - self._seen.keys()):
            if _objects(self._reader.table(f"{SCHEMA}.{table}")):
                self._seen[table] = time.time()
        if self._seen:
            self._compare(sorted(self._seen)[self._looks % len(self._seen)])
            self._looks += 1

    def _compare(self, table: str) -> None:
        with self._context.database.begin() as connection:
            committed = set(connection.execute(text(_COMMITTED_OF), {"table": table}).scalars())
            rows, shown = connection.execute(text(_LAKE), {"table": table}).one()
        listed = _objects(self._reader.table(f"{SCHEMA}.{table}"))
        if absent := committed - listed:
            self._missing.append(f"{table}: staging objects {sorted(absent)[:5]} are committed and not listed")
        if shown != rows:
            self._missing.append(f"{table}: DuckLake shows {shown} of {rows} committed rows")


def _objects(table: ReadTable) -> set[int]:
    """Returns the staging objects whose rows readers of open partitions list. Their id is the object's name."""
    names = [item.url.rsplit("/", 1)[1] for partition in table.partitions for item in partition.objects]
    return {int(name.removeprefix("prism-").split(".")[0]) for name in names if name.startswith("prism-")}


def unread(context: StageContext, traffic: Traffic, dropped: Collection[int]) -> list[str]:
    """Reads all rows through each catalog. Returns a sentence for each table with lost, doubled or foreign rows."""
    faults = _unread(LakeReader(context.settings), traffic, dropped)
    if traffic.commit_seconds:
        with IcebergReader(context.settings) as reader:
            faults += [f"Iceberg: {fault}" for fault in _unread(reader, traffic, dropped)]
    return faults


def _unread(reader: LakeReader | IcebergReader, traffic: Traffic, dropped: Collection[int]) -> list[str]:
    faults = []
    for table, numbers in traffic.expected().items():
        expected = {number: traffic.lines for number in numbers if number in dropped}
        found = _counts(reader, table, traffic.lines) if expected else {}
        if wrong := compared(expected, found):
            faults.append(f"{table}: {wrong}")
    return faults


def _counts(reader: LakeReader | IcebergReader, table: str, lines: int) -> dict[int, tuple[int, int]]:
    """Returns rows and distinct ids by object number from a query."""
    sql = f"SELECT id // {lines}, count(*), count(DISTINCT id) FROM {SCHEMA}.{table} GROUP BY 1"
    return {row[0]: (row[1], row[2]) for row in run_query(reader, sql).rows}


def compared(wanted: Mapping[int, int], found: Mapping[int, tuple[int, int]]) -> str:
    """Returns what is wrong with the (rows, distinct ids) found by object, or ""."""
    lost = sum(lines - found.get(number, (0, 0))[1] for number, lines in wanted.items())
    doubled = sum(rows - distinct for rows, distinct in found.values())
    strange = sum(rows for number, (rows, _) in found.items() if number not in wanted)
    parts = ((lost, "lost"), (doubled, "doubled"), (strange, "that nobody wrote"))
    return ", ".join(f"{count} rows {what}" for count, what in parts if count)
