"""A polling reader: an analyst's view of a lake, up to ten times a second, while writers die."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from sqlalchemy import text

from prism_assets.domain.errors import CatalogUnavailable, DatabaseUnavailable, StoreUnavailable, WrongUse
from prism_assets.metadata.database import Database
from prism_assets.reading.lake_reader import LakeReader, ReadObject, path_of
from prism_assets.settings import Settings
from prism_assets_tests.parquet import read_parquet

EVERY = 0.1
_LAKE = " as DuckLake"
WIDTHS = {"smallint": 16, "int": 32, "bigint": 64}
"""Bits of whole numbers, by the type in Glue."""
UNFINISHED = re.compile(r"\.(gz|parquet|json)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""Files `KEY-UUID` of unfinished puts. s3proxy lists them; S3 never does."""


@dataclass
class View:
    """The result of reading a partition once: ids, including doubles, and faults of its objects."""

    parts: list[list[int]]
    faults: list[str]
    content: tuple[Any, ...] = ()
    """The parts of the partition. Equal content has equal ids."""
    wide: list[str] = field(default_factory=list)
    """Objects with a whole number wider than in Glue, which readers get wrong."""
    narrow: list[str] = field(default_factory=list)
    """Objects with a narrower one, which some readers cannot read."""

    @property
    def ids(self) -> list[int]:
        """All ids."""
        return [number for part in self.parts for number in part]


_LAKE_FILES = """
SELECT t.path || f.path, f.file_size_bytes FROM prism_lake.ducklake_data_file f
JOIN prism_lake.ducklake_table t USING (table_id) JOIN prism_lake.ducklake_schema s USING (schema_id)
WHERE s.schema_name = :schema AND t.table_name = :table
"""


class IdReader:
    """Reads the ids of partitions as shown by the catalog. Reads the same bytes only once."""

    def __init__(self, settings: Settings) -> None:
        self._reader = LakeReader(settings)
        self._root = settings.local_root
        self._known: dict[tuple[str, int, Any], tuple[list[int], dict[str, int]]] = {}

    def look(self, table: str) -> dict[date, View]:
        """All partitions of a table; none before the table is in the catalog."""
        try:
            found = self._reader.table(table)
        except WrongUse:
            return {}
        said = {name: WIDTHS[kind] for name, kind in found.columns if kind in WIDTHS}
        return {item.date: self._view(item.location, item.objects, said) for item in found.partitions}

    def look_at_lake(self, database: Database, table: str) -> dict[date, View]:
        """Reads all partitions of a table by the views for DuckLake clients. Returns none before the table exists."""
        schema, _, name = table.partition(".")
        with database.begin() as connection:
            rows = connection.execute(text(_LAKE_FILES), {"schema": schema, "table": name}).all()
        of_day: dict[date, list[ReadObject]] = {}
        for path, length in rows:
            url = "s3://" + path.removeprefix("s3://").removeprefix(f"{self._root}/")
            day = date.fromisoformat(url.rsplit("/dt=", 1)[1][:10])
            of_day.setdefault(day, []).append(ReadObject(url=url, content_length=length))
        return {day: self._view(f"the catalog of DuckLake of {day}", files) for day, files in of_day.items()}

    def _view(self, location: str, files: Iterable[ReadObject], said: Mapping[str, int] | None = None) -> View:
        objects = [item for item in files if not UNFINISHED.search(item.url)]
        paths = [path_of(item.url) for item in objects]
        with _of_the_store():
            infos: list[Any] = self._reader.filesystem.get_file_info(paths)
        view = View([], [], tuple((info.path, info.size, info.mtime_ns) for info in infos))
        for item, info in zip(objects, infos, strict=True):
            if info.type != fs.FileType.File:
                view.faults.append(f"{location} names {item.url}, which is missing")
            elif info.size != item.content_length:
                view.faults.append(f"{item.url} has {info.size} bytes, not {item.content_length}")
            else:
                ids, widths = self._read(info)
                view.parts.append(ids)
                view.wide += [item.url for name, width in (said or {}).items() if widths.get(name, 0) > width]
                view.narrow += [item.url for name, width in (said or {}).items() if widths.get(name, width) < width]
        return view

    def _read(self, info: Any) -> tuple[list[int], dict[str, int]]:
        """The ids, and how many bits whole numbers have, by column."""
        key = (info.path, info.size, info.mtime_ns)
        if key not in self._known:
            with _of_the_store(), self._reader.filesystem.open_input_file(info.path) as file:
                body = file.read()
            numbers = [field for field in pq.read_schema(pa.BufferReader(body)) if pa.types.is_integer(field.type)]
            widths = {field.name: field.type.bit_width for field in numbers}
            self._known[key] = read_parquet(body, ["id"]).column(0).to_pylist(), widths
        return self._known[key]


@contextmanager
def _of_the_store() -> Iterator[None]:
    """Wraps single reads, because Arrow raises OSError both for an unreachable store and for damaged Parquet."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnavailable(str(error)) from error


@dataclass
class Poller(threading.Thread):
    """Reads tables repeatedly, and records violations of invariants.

    I2: no id twice. I3: a partition never shows less than before, except `ending` ones, which may vanish as a whole.
    I4: no object is missing or differs in length, and no whole number is wider than in Glue, unless the read had older
    types. In an `erased` table ids divisible by the number may go. A read may miss an object that it had listed: lives
    leap over the reader lease, and the read is repeated.

    It reads `at_least` this often, however busy the machine is; the last reads may see the final state. A read may fail
    while its servers are down: Glue and the store only with `may_fail`, DuckLake also with `database_may_fail`, because
    PostgreSQL is its catalog.
    """

    settings: Settings
    tables: Sequence[str]
    ending: frozenset[tuple[str, date]] = frozenset()
    every: float = EVERY
    rest: int = 4
    """How many times as long as a read the pause after it is."""
    erased: Mapping[str, int] = field(default_factory=dict)
    may_fail: bool = False
    database_may_fail: bool = False
    at_least: int = 3
    looks: int = 0
    violations: list[str] = field(default_factory=list)
    seen: dict[tuple[str, date], set[int]] = field(default_factory=dict)
    _content: dict[tuple[str, date], tuple[Any, ...]] = field(default_factory=dict)
    has_seen_all: threading.Event = field(default_factory=threading.Event)
    """Set once each table was read."""
    _end: threading.Event = field(default_factory=threading.Event)
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Reads one table after another, less often on a busy machine, to leave time to the writers."""
        reader, tables = IdReader(self.settings), itertools.cycle(self.tables)
        database = Database(self.settings.database_url.get_secret_value())
        while not self._end.is_set() or self.looks < self.at_least:
            started = time.monotonic()
            with self._looking:
                table = next(tables)
                self.look(reader, table)
                self.look_at_lake(reader, database, table)
            if self.looks >= len(self.tables):
                self.has_seen_all.set()
            cost = time.monotonic() - started
            self._end.wait(max(self.every - cost, self.rest * cost))
        database.dispose()

    def between_looks(self) -> AbstractContextManager[bool]:
        """Keeps reads out of the block, for changes no reader tolerates, such as replaced bytes of an object."""
        return self._looking

    def look(self, reader: IdReader, table: str) -> None:
        """Reads once. With servers down the reader sees nothing, which is no fault of the writers."""
        self.looks += 1
        try:
            views = reader.look(table)
            is_wide = any(view.wide for view in views.values())
            if is_wide or (table in self.erased and any(view.faults for view in views.values())):
                views = reader.look(table)
        except Exception as error:
            if not (self.may_fail and isinstance(error, (CatalogUnavailable, StoreUnavailable))):
                self.violations.append(f"a read of {table} failed: {type(error).__name__}: {error}")
        else:
            self._judge(table, views)

    def look_at_lake(self, reader: IdReader, database: Database, table: str) -> None:
        """Reads once like a DuckLake client, by the views in PostgreSQL."""
        try:
            views = reader.look_at_lake(database, table)
            if table in self.erased and any(view.faults for view in views.values()):
                views = reader.look_at_lake(database, table)
        except Exception as error:
            is_database = isinstance(error, DatabaseUnavailable) and (self.database_may_fail or self.may_fail)
            if not is_database and not (self.may_fail and isinstance(error, StoreUnavailable)):
                self.violations.append(f"a read of {table} as DuckLake failed: {type(error).__name__}: {error}")
        else:
            self._judge(f"{table}{_LAKE}", views)

    def forget_lake(self) -> None:
        """From now on clients of DuckLake may see less: an older copy of PostgreSQL has taken over."""
        self.seen = {(table, day): ids for (table, day), ids in self.seen.items() if not table.endswith(_LAKE)}

    def _judge(self, table: str, views: dict[date, View]) -> None:
        for day, view in views.items():
            where = f"{table} {day}"
            self.violations += [f"I4 {where}: {fault}" for fault in view.faults]
            self.violations += [f"I4 {where}: {url} has a wider column than Glue says" for url in view.wide]
            if self._content.get((table, day)) == view.content:
                continue
            self._content[table, day] = view.content
            ids = view.ids
            now = set(ids)
            if len(now) != len(ids):
                self.violations.append(f"I2 {where}: {len(ids) - len(now)} rows were seen twice")
            before = self.seen.get((table, day), set())
            divisor = self.erased.get(table.removesuffix(_LAKE))
            missing = {number for number in before - now if divisor is None or number % divisor}
            if missing:
                self.violations.append(f"I3 {where}: {len(missing)} of {len(before)} rows were seen before and not now")
            self.seen[table, day] = before | now
        name = table.removesuffix(_LAKE)
        for lost in {day for of, day in self.seen if of == table and (name, day) not in self.ending} - set(views):
            self.violations.append(f"I3 {table} {lost}: the partition was seen before and not now")

    def finish(self) -> list[str]:
        """Ends the polling. Returns each violation once."""
        self._end.set()
        self.join(300)
        return list(dict.fromkeys(self.violations))
