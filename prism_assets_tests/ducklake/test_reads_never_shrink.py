"""A polling DuckLake client never sees fewer rows than before, or a row twice, during merges."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession

ROUNDS = 8


class Reader(threading.Thread):
    """Reads all ids in one session until told to end."""

    def __init__(self, lake: LakeOfTest) -> None:
        super().__init__(daemon=True)
        self.lake, self.wrong = lake, list[str]()
        self.reads = 0
        self.end = threading.Event()

    def run(self) -> None:
        before: set[int] = set()
        try:
            while not self.end.is_set():
                ids = self.lake.ids()
                now = set(ids)
                if len(now) != len(ids) or before - now:
                    self.wrong.append(f"{len(ids) - len(now)} rows twice, {len(before - now)} of {len(before)} gone")
                before, self.reads = now, self.reads + 1
        except Exception as error:
            self.wrong.append(f"a read failed: {error}")

    def looks_again(self, more: int = 2) -> None:
        """Returns after a further complete read."""
        wanted = self.reads + more
        for _ in range(600):
            if self.reads >= wanted or self.wrong:
                return
            self.end.wait(0.05)
        raise AssertionError("the reader does not look")


def test_a_session_reads_on_while_objects_are_added_and_merged(
    world: World, lake: LakeOfTest, new_session: Callable[[], DuckDBSession]
) -> None:
    world.apply(a_table())
    rows = some_rows(20, utc("2026-03-01T12:00"))
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    world.catalog("2026-03-02T01:00")
    with new_session() as session:
        reader = Reader(dataclasses.replace(lake, session=session))
        reader.start()
        for number in range(ROUNDS):
            new = some_rows(20, utc("2026-03-01T13:00"))
            rows += new
            world.drop(new)
            world.stream(f"2026-03-02T{number + 2:02}:00")
            world.merge(f"2026-03-02T{number + 2:02}:30", everything=True)
        reader.looks_again()
        reader.end.set()
        reader.join(30)
    assert reader.wrong == []
    assert reader.reads >= ROUNDS
    assert lake.ids() == sorted(row["id"] for row in rows)
    assert lake.sql("SELECT count(*) FROM prism_merge_ranges WHERE lower_bound IS NOT NULL") == [(1,)]
