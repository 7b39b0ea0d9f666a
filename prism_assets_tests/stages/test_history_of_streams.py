"""Objects of a history wait for Stream once their stream is stopped, discarded, moved, or shared by tables."""

from __future__ import annotations

from datetime import date

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.stages.findings.history import HISTORY
from prism_assets.stages.findings.objects import UNREAD
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.history.run import HistoryReport, run_history
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

TODAY = "2026-03-10"
NOW = f"{TODAY}T12:00"
OLD = date(2026, 2, 1)
SINCE = f'url: "s3://staging/events/", since: "{TODAY}"'


def events(more: str = "", stream: str = SINCE, name: str = "log.events") -> str:
    return a_table(name, stream=stream + more, accept="{from: object}")


def put_old(world: World) -> list[int]:
    rows = some_rows(3, utc(f"{OLD}T10:00"))
    world.drop(rows, stream=f"events/dt={OLD}")
    return [row["id"] for row in rows]


def bring_in(world: World, first: date | None = OLD, name: str = "log.events") -> HistoryReport:
    last = None if first is None else OLD
    return run_history(world.context, name, first=first, last=last, clock=lambda: utc(NOW), patience_seconds=0.0)


def states(world: World) -> list[tuple[str, str]]:
    with world.context.database.begin() as connection:
        found = connection.exec_driver_sql(
            "SELECT table_name, state FROM prism_staging_objects JOIN prism_tables USING (prism_table_id) ORDER BY 1, 2"
        )
        return [(row[0], row[1]) for row in found]


def register_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a run after its registration."""
    with monkeypatch.context() as patch:
        patch.setattr("prism_assets.stages.history.run._convert", lambda _context, _id, report, *_: report)
        bring_in(world)


def test_objects_that_wait_move_with_their_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(events(), now=f"{TODAY}T00:00")
    ids = put_old(world)
    register_only(world, monkeypatch)
    world.apply(
        events(stream='url: "s3://staging/other/"'),
        events(name="log.taker"),
        now=f"{TODAY}T01:00",
    )
    world.stream(NOW)
    for name in ("log.events", "log.taker"):
        bring_in(world, None, name)
    world.catalog(NOW)
    assert states(world) == [("taker", "done")]
    assert world.ids("log.taker") == ids


def test_a_prefix_that_a_second_table_joins_gives_its_history_to_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the second table's listing has the object, too, and both read all lines."""
    world.apply(events(stream='url: "s3://staging/events/"'), now=f"{TODAY}T00:00")
    ids = put_old(world)
    register_only(world, monkeypatch)
    plain = 'url: "s3://staging/events/"'
    world.apply(
        events(stream=plain + ", route: {otherwise: true}"),
        events(stream=plain + ', route: {key: "dt=*/**"}', name="log.clicks"),
        now=f"{TODAY}T01:00",
    )
    world.stream(NOW)
    bring_in(world, None)
    world.catalog(NOW)
    assert states(world) == [("clicks", "done")]
    assert world.ids("log.clicks") == ids


def test_a_stopped_stream_holds_no_day_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would convert its objects, and the day would wait for ever."""
    world.apply(events(), now=f"{TODAY}T00:00")
    first = put_old(world)
    bring_in(world)
    second = put_old(world)
    register_only(world, monkeypatch)
    world.apply(events(", enabled: false"), now=f"{TODAY}T01:00")
    assert [day for table in world.catalog(NOW).tables for day in table.closed] == [OLD]
    kinds = [item.kind for item in read_findings(world.context, None, [HISTORY, UNREAD], now=utc(NOW))]
    assert kinds == ["stopped_stream"]
    world.apply(events(), now=f"{TODAY}T02:00")
    world.stream(NOW)
    world.catalog(NOW)
    assert world.ids() == first + second


def test_a_discarded_stream_counts_its_history_as_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(events(), now=f"{TODAY}T00:00")
    put_old(world)
    register_only(world, monkeypatch)
    world.apply(events(", discard: true"), now=f"{TODAY}T01:00")
    world.stream(NOW)
    assert states(world) == [("events", "done")]


def test_streams_that_are_not_read_have_no_history(world: World) -> None:
    world.apply(events(", enabled: false"), now=f"{TODAY}T00:00")
    put_old(world)
    with pytest.raises(WrongUse, match="its streams are stopped"):
        bring_in(world)
