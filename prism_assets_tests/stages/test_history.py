"""Old objects of a table come in after all other objects, day by day, and their days close once everything is in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.findings import Acts
from prism_assets.metadata.intake import claims
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.findings.history import HISTORY
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.history.run import HistoryReport, preview_history, run_history
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

TODAY = "2026-03-10"
NOW = f"{TODAY}T12:00"
OLD, NEXT = date(2026, 2, 1), date(2026, 2, 2)
SINCE = 'url: "s3://staging/events/", since: "2026-03-10"'


def in_folder(world: World, day: date, rows: Sequence[Any]) -> str:
    return world.drop(rows, stream=f"events/dt={day}")


def old_rows(day: date, count: int = 3) -> list[dict[str, Any]]:
    return some_rows(count, utc(f"{day}T10:00"))


def bring_in(world: World, first: date | None = OLD, last: date | None = NEXT, **more: Any) -> HistoryReport:
    return run_history(
        world.context, "log.events", first=first, last=last, clock=lambda: utc(NOW), **{"patience_seconds": 0.0, **more}
    )


def states(world: World) -> dict[str, int]:
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT state, count(*) AS objects FROM prism_staging_objects GROUP BY state")
        return {row.state: row.objects for row in rows}


def register_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a run after its registration."""
    with monkeypatch.context() as patch:
        patch.setattr("prism_assets.stages.history.run._convert", lambda _context, _id, report, *_: report)
        bring_in(world)


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table(stream=SINCE, accept="{from: object}"), now=f"{TODAY}T00:00")
    return world


def test_discovery_leaves_days_before_since_to_history(events: World) -> None:
    in_folder(events, OLD, old_rows(OLD))
    in_folder(events, date(2026, 3, 10), some_rows(2, utc(NOW)))
    report = events.discover(NOW)
    assert report.new == 1
    assert report.describe().endswith("1 object left out (1 of days before `since`)")
    assert bring_in(events).registered == 1


def test_all_rows_are_readable_once_and_the_second_run_changes_nothing(events: World) -> None:
    rows = [old_rows(OLD), old_rows(OLD), old_rows(NEXT)]
    for day, written in zip((OLD, OLD, NEXT), rows, strict=True):
        in_folder(events, day, written)
    report = bring_in(events)
    assert (report.registered, report.stream.objects, report.stream.rows_out) == (3, 3, 9)
    assert report.rest is None
    assert "the history is complete" in report.describe()
    events.catalog(NOW)
    assert events.ids() == sorted(row["id"] for written in rows for row in written)
    again = bring_in(events)
    assert (again.registered, again.stream.objects) == (0, 0)
    assert events.ids() == sorted(row["id"] for written in rows for row in written)


def test_no_batch_of_stream_takes_an_old_object(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(events, OLD, old_rows(OLD))
    register_only(events, monkeypatch)
    in_folder(events, date(2026, 3, 10), some_rows(2, utc(NOW)))
    assert events.stream(NOW).objects == 1
    assert states(events) == {"done": 1, "history": 1}
    assert bring_in(events, None).stream.objects == 1


def test_a_batch_of_history_waits_for_objects_of_today(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(events, OLD, old_rows(OLD))
    register_only(events, monkeypatch)
    in_folder(events, date(2026, 3, 10), some_rows(2, utc(NOW)))
    run_discover(events.context, now=utc(NOW))
    seen: list[dict[str, int]] = []

    def convert_today(_seconds: float) -> None:
        """Another process, which comes to its turn while the history waits."""
        seen.append(states(events))
        run_stream(events.context, now=utc(NOW))

    monkeypatch.setattr("prism_assets.stages.history.run.time.sleep", convert_today)
    report = bring_in(events, None, patience_seconds=60.0)
    assert seen == [{"pending": 1, "history": 1}]
    assert report.stream.objects == 1


def test_a_backlog_of_today_delays_a_history_and_does_not_stop_it(events: World) -> None:
    in_folder(events, OLD, old_rows(OLD))
    in_folder(events, date(2026, 3, 10), some_rows(2, utc(NOW)))
    run_discover(events.context, now=utc(NOW))
    assert bring_in(events, patience_seconds=0.3).stream.objects == 1
    assert states(events) == {"pending": 1, "done": 1}


def test_a_day_stays_open_until_its_history_is_in_and_then_closes_once(
    events: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each batch after the first would make delayed objects of a closed day."""
    for _ in range(3):
        in_folder(events, OLD, old_rows(OLD))
    register_only(events, monkeypatch)
    monkeypatch.setattr("prism_assets.stages.history.run._LEAST_OBJECTS", 1)
    monkeypatch.setattr("prism_assets.stages.history.run._OBJECTS_PER_SLOT", 1)

    closed: list[list[date]] = []

    def catalog_between(_context: Any, _seconds: float) -> None:
        closed.append([day for table in events.catalog(NOW).tables for day in table.closed])

    monkeypatch.setattr("prism_assets.stages.history.run._let_others_go_first", catalog_between)
    report = bring_in(events, None)
    assert report.stream.batches == 3
    assert [change.delayed_objects for change in report.stream.changes] == [0]
    assert closed == [[], [], [], [OLD]]
    assert len(events.ids()) == 9


def test_status_says_what_a_day_and_its_table_wait_for(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(events, OLD, old_rows(OLD))
    bring_in(events)
    in_folder(events, NEXT, old_rows(NEXT))
    register_only(events, monkeypatch)
    events.catalog(NOW)
    said = [item.says for item in events.status(str(OLD), NOW).findings]
    assert said[0] == "waits for the close: 1 object of its history is not converted yet"
    (finding,) = read_findings(events.context, None, [HISTORY], now=utc(NOW))
    assert finding.says == "1 old object waits for `prism history`, of the days 2026-02-02 to 2026-02-02"
    assert finding.acts is Acts.PERSON
    assert "Run `prism history log.events`" in finding.remedy


def test_rows_of_a_day_that_is_closed_already_are_delayed_and_readable(events: World) -> None:
    first, second = old_rows(OLD), old_rows(OLD)
    in_folder(events, OLD, first)
    bring_in(events)
    events.catalog(NOW)
    events.catalog(NOW)
    in_folder(events, OLD, second)
    report = bring_in(events)
    assert [change.delayed_objects for change in report.stream.changes] == [1]
    events.catalog(NOW)
    assert events.ids() == sorted(row["id"] for row in first + second)


def test_a_dead_batch_of_history_is_finished_by_stream(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of today would otherwise wait for it until somebody runs the history again."""
    in_folder(events, OLD, old_rows(OLD))
    register_only(events, monkeypatch)
    plan = start_batch(events.context, None, claims.HISTORY)
    assert plan is not None
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_batches SET heartbeat_time = now() - interval '1 hour'")
    report = run_stream(events.context, now=utc(NOW))
    assert (report.reclaimed, report.objects) == (1, 1)
    assert states(events) == {"done": 1}


def test_waiting_objects_of_stream_are_set_back_and_begun_ones_are_not(world: World) -> None:
    world.apply(a_table(accept="{from: object}"), now=f"{TODAY}T00:00")
    in_folder(world, OLD, old_rows(OLD))
    world.stream(NOW)
    in_folder(world, OLD, old_rows(OLD))
    world.discover(NOW)
    report = bring_in(world)
    assert (report.registered, report.set_back, report.stream.objects) == (0, 1, 1)
    assert states(world) == {"done": 2}


def test_two_runs_of_a_table_do_not_meet(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(events, OLD, old_rows(OLD))
    inner: list[HistoryReport] = []

    def meet(*_: Any) -> None:
        inner.append(bring_in(events, None, wait_seconds=0.0))

    monkeypatch.setattr("prism_assets.stages.history.run._let_others_go_first", meet)
    assert bring_in(events).stream.objects == 1
    assert "another run brings in the history of log.events" in inner[0].errors[0]


def test_the_plan_counts_days_objects_and_bytes_and_changes_nothing(events: World) -> None:
    keys = [in_folder(events, OLD, old_rows(OLD)), in_folder(events, NEXT, old_rows(NEXT))]
    in_folder(events, date(2026, 3, 10), old_rows(OLD))
    in_folder(events, OLD, [])
    events.drop(old_rows(OLD))
    bring_in(events, NEXT)
    plan = preview_history(events.context, "log.events", OLD, None, utc(NOW))
    assert [(day.day, day.objects) for day in plan.days] == [(OLD, 2), (NEXT, 1)]
    assert plan.bytes > sum(events.context.stores.head("staging", key).content_length for key in keys)
    assert (plan.known, plan.undated) == (1, 1)
    assert plan.describe().startswith("2 days, 3 objects, ")
    assert states(events) == {"done": 1}


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (OLD, date(2026, 3, 10), "is not over yet"),
        (NEXT, OLD, "is after --until"),
    ],
)
def test_days_without_a_history_are_refused(events: World, first: date, last: date, words: str) -> None:
    with pytest.raises(WrongUse, match=words):
        bring_in(events, first, last)


def test_days_whose_rows_would_be_too_old_are_refused(world: World) -> None:
    world.apply(a_table(), now=f"{TODAY}T00:00")
    with pytest.raises(WrongUse, match="leave `from` out"):
        bring_in(world, date(2026, 3, 10) - timedelta(days=400))


def test_a_prefix_of_several_tables_has_no_history(world: World) -> None:
    stream = 'url: "s3://staging/events/", route: {by: $.kind, %s}'
    world.apply(
        a_table("log.events", stream=stream % "otherwise: true"),
        a_table("log.clicks", stream=stream % "in: [click]"),
        now=f"{TODAY}T00:00",
    )
    with pytest.raises(WrongUse, match="feeds several tables"):
        bring_in(world)
