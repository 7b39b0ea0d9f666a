"""Readers that poll an Iceberg table while it changes, and note every fault they see."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import duckdb
from pyiceberg.table import Table

from prism_assets.domain.errors import WrongUse
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.settings import Settings

Read = Callable[[], list[int]]
"""Returns all ids of one read. Raises WrongUse as long as the table does not exist."""
_HELD_FOR = 4


@dataclass
class Poller(threading.Thread):
    """Reads all ids again and again.

    `lost` are ids seen once and then no more, `doubled` ids seen twice in one read.
    """

    reader: Callable[[], AbstractContextManager[Read]]
    looks: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)
    looked: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        before: set[int] = set()
        is_last = False
        try:
            with self.reader() as read:
                while not is_last:
                    is_last = self.done.wait(0.1)
                    try:
                        counts = Counter(read())
                    except WrongUse:
                        continue
                    self.doubled |= {number for number, count in counts.items() if count > 1}
                    self.lost |= before - set(counts)
                    self.looks.append(counts.total())
                    before = set(counts)
                    self.looked.set()
        except BaseException as error:
            self.errors.append(error)

    def finish(self) -> None:
        self.done.set()
        self.join(timeout=60)

    @property
    def faults(self) -> tuple[set[int], set[int], list[BaseException]]:
        """Lost ids, doubled ids and errors. All must be empty."""
        return self.lost, self.doubled, self.errors


@contextmanager
def polled(*readers: Callable[[], AbstractContextManager[Read]]) -> Iterator[list[Poller]]:
    """Has all of them read as long as the block takes."""
    pollers = [Poller(reader) for reader in readers]
    for poller in pollers:
        poller.start()
    try:
        yield pollers
    finally:
        for poller in pollers:
            poller.finish()


def ids_of(table: Table) -> list[int]:
    """Returns all ids of the snapshot a table was loaded with."""
    return [int(number) for number in table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()]


@contextmanager
def with_pyiceberg(settings: Settings, name: str) -> Iterator[Read]:
    """Loads the table for each look."""
    with IcebergReader(settings) as reader:
        yield lambda: ids_of(reader.table(name))


@contextmanager
def with_a_held_snapshot(settings: Settings, name: str) -> Iterator[Read]:
    """Loads the table for the first of some looks, as a long query does: all of them must find the same."""
    held: list[tuple[Table, list[int]]] = []

    with IcebergReader(settings) as reader:

        def read() -> list[int]:
            if not held or len(held) == _HELD_FOR:
                table = reader.table(name)
                held[:] = [(table, sorted(ids_of(table)))]
                return held[0][1]
            table, first = held[0]
            found = sorted(ids_of(table))
            assert found == first, f"snapshot {table.metadata.current_snapshot_id} is another one at a later look"
            held.append((table, found))
            return found

        yield read


@contextmanager
def with_duckdb(settings: Settings, name: str) -> Iterator[Read]:
    """Lists files by PyIceberg and reads them by DuckDB."""
    with IcebergReader(settings) as reader, duckdb.connect() as connection:

        def read() -> list[int]:
            urls = [task.file.file_path for task in reader.table(name).scan().plan_files()]
            files = [f"{settings.local_root}/{url.removeprefix('s3://')}" for url in urls]
            if not files:
                return []
            rows = connection.execute("SELECT id FROM read_parquet(?, hive_partitioning = false)", [files]).fetchall()
            return [row[0] for row in rows]

        yield read
