"""Streams, merges, repairs, failures, strangers, garbage collections and restored backups in any order.

After each publication readers see every row once, and at all times each retained snapshot is readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import pytest

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.garbage import Reason
from prism_assets.domain.iceberg.head import HeadChange, TableHead
from prism_assets.domain.iceberg.snapshots import DayChange, KnownTable, ListedFile
from prism_assets.stages.iceberg import plan
from prism_assets_tests.builders import a_table
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.iceberg.any_order import played
from prism_assets_tests.world import World

SHORT, LONG = (5, 50), (2_000, 100)


@pytest.fixture
def lake(services: Mapping[str, str], postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    """A lake with generated small objects."""
    url = postgres.create_database()
    postgres.forget_in_a_crash(url)
    made = World.create(tmp_path, url, services["PRISM_GLUE_ENDPOINT"], lease_seconds=60, gc_max_fraction=1.0)
    made.apply(a_table(iceberg="{keep_hours: 4}"))
    try:
        yield made
    finally:
        made.close()
        postgres.drop_database(url)


def test_every_publication_shows_every_row_once(lake: World, long: bool, figures: Figures) -> None:
    sequences, steps = LONG if long else SHORT
    done = played(lake, range(sequences), steps)
    assert done.publications > sequences * steps / 5
    assert min(done.garbage[reason.value] for reason in (Reason.MERGED, Reason.SUPERSEDED, Reason.UNLISTED)) > 0
    figures.note(
        "Iceberg in any order",
        sequences=sequences,
        steps=sequences * steps,
        publications=done.publications,
        garbage=done.garbage.total(),
    )


def repeated(
    day: date,
    publication: Publication,
    wanted: Sequence[DataFile],
    listed: Iterable[ListedFile],
    *,
    rewrites: bool,
    updates: bool,
) -> DayChange:
    """The naive way: adds a day's files whatever the snapshot already lists."""
    return DayChange(date=day, publication=publication, added=tuple(wanted), rewrites=rewrites, updates=updates)


def trusting(known: KnownTable | None, head: TableHead | None) -> HeadChange:
    """The naive way: takes the record for the content of the head."""
    return HeadChange.NEW if head is None else HeadChange.SAME


@pytest.mark.parametrize("naive", [("day_change", repeated), ("compare_head", trusting)], ids=lambda pair: pair[0])
def test_naive_ways_are_found(
    lake: World, monkeypatch: pytest.MonkeyPatch, naive: tuple[str, Callable[..., object]], figures: Figures
) -> None:
    monkeypatch.setattr(plan, *naive)
    with pytest.raises(AssertionError) as found:
        played(lake, range(10), 50)
    figures.note("Null controls", [str(found.value)], control=f"`{naive[0]}` of Iceberg, as it would be naively")
