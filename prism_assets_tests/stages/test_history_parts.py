"""Histories in parts, with late writers, cancelled, paused, and beside the figures of today."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.days import partitions
from prism_assets.metadata.intake import backlog, claims
from prism_assets.metadata.intake.arrivals import arrivals_of_batches
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.findings.history import HISTORY
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.history import run
from prism_assets.stages.history.run import HistoryReport, cancel_history, run_history
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World

TODAY = "2026-03-10"
NOW = f"{TODAY}T12:00"
OLD, NEXT = date(2026, 2, 1), date(2026, 2, 2)
EVENTS = a_table(stream=f'url: "s3://staging/events/", since: "{TODAY}"', accept="{from: object}")


@pytest.fixture
def events(world: World) -> World:
    world.apply(EVENTS, now=f"{TODAY}T00:00")
    return world


def in_folder(world: World, day: date, rows: Sequence[Any]) -> str:
    return world.drop(rows, stream=f"events/dt={day}")


def old_rows(day: date = OLD, hour: int = 10) -> list[dict[str, Any]]:
    return some_rows(3, utc(f"{day}T{hour}:00"))


def ids(*written: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for rows in written for row in rows)


def bring_in(world: World, first: date | None = OLD, last: date | None = None) -> HistoryReport:
    clock = lambda: utc(NOW)  # noqa: E731
    return run_history(world.context, "log.events", first=first, last=last, clock=clock, patience_seconds=0.0)


def register_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a run after its registration."""
    with monkeypatch.context() as patch:
        patch.setattr("prism_assets.stages.history.run._convert", lambda _context, _id, report, *_: report)
        bring_in(world)


def ask(world: World, statement: str) -> list[Any]:
    with world.context.database.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return list(result) if result.returns_rows else []


def found(world: World) -> list[Finding]:
    return list(read_findings(world.context, None, [HISTORY], now=utc(NOW)))


def closed(world: World) -> list[date]:
    return [day for table in world.catalog(NOW).tables for day in table.closed]


def test_an_old_object_that_is_written_again_is_noted_like_any_other(events: World) -> None:
    key = in_folder(events, OLD, old_rows())
    bring_in(events)
    events.discover(NOW)
    assert ask(events, "SELECT 1 FROM prism_staging_objects WHERE overwritten_time IS NOT NULL") == []
    (events.root / "buckets" / "staging" / key).write_bytes(b'{"id": 1}\n')
    events.discover(NOW)
    assert len(ask(events, "SELECT 1 FROM prism_staging_objects WHERE overwritten_time IS NOT NULL")) == 1


def test_an_old_object_that_is_repaired_after_it_failed_is_read(events: World) -> None:
    key = events.drop([], stream=f"events/dt={OLD}", body=b"\xfd7zXZ\x00\x00\x01")
    bring_in(events)
    ask(events, "UPDATE prism_staging_objects SET state = 'failed', retry_time = NULL")
    rows = old_rows()
    (events.root / "buckets" / "staging" / key).unlink()
    repaired = in_folder(events, OLD, rows)
    path = events.root / "buckets" / "staging"
    (path / repaired).rename(path / key)
    events.stream(NOW)
    events.catalog(NOW)
    assert events.ids() == ids(rows)


def test_an_object_that_comes_after_its_history_is_told_until_it_is_brought_in(events: World) -> None:
    first, second = old_rows(), old_rows()
    in_folder(events, OLD - timedelta(days=1), old_rows())
    in_folder(events, OLD, first)
    events.discover(NOW)
    assert found(events) == []
    bring_in(events)
    events.discover(NOW)
    assert found(events) == []
    in_folder(events, OLD, second)
    events.discover(NOW)
    (late,) = found(events)
    assert (late.kind, late.count, late.acts, late.needs_a_person) == ("history_late", 1, Acts.PERSON, True)
    assert "Run `prism history log.events --from 2026-02-01`" in late.remedy
    assert bring_in(events).registered == 1
    assert found(events) == []
    events.catalog(NOW)
    assert events.ids() == ids(first, second)


def test_a_restore_that_lost_registrations_is_told(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery leaves these days out, so it does not find the objects by itself."""
    in_folder(events, OLD, old_rows())
    register_only(events, monkeypatch)
    ask(events, "DELETE FROM prism_staging_objects")
    events.discover(NOW)
    assert [(item.kind, item.count) for item in found(events)] == [("history_late", 1)]


def test_a_cancelled_history_stays_cancelled(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(events, OLD, old_rows())
    register_only(events, monkeypatch)
    ended = cancel_history(events.context, "log.events")
    assert (ended.forgotten, ended.given_back) == (1, 0)
    events.stream(NOW)
    assert ask(events, "SELECT 1 FROM prism_staging_objects") == []
    assert found(events) == []


def test_without_since_a_cancelled_history_waits_for_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing would register its objects again."""
    world.apply(a_table(accept="{from: object}"), now=f"{TODAY}T00:00")
    rows = old_rows()
    in_folder(world, OLD, rows)
    register_only(world, monkeypatch)
    ended = cancel_history(world.context, "log.events")
    assert (ended.forgotten, ended.given_back) == (0, 1)
    assert ask(world, "SELECT state, history_date FROM prism_staging_objects") == [("pending", None)]
    world.stream(NOW)
    world.catalog(NOW)
    assert world.ids() == ids(rows)


def test_the_last_day_of_a_part_closes_after_the_first_objects_of_the_next_part(events: World) -> None:
    """The last rows of a day often lie in objects of the next one, and would be delayed objects of a closed day."""
    first, late = old_rows(), old_rows(hour=23)
    in_folder(events, OLD, first)
    in_folder(events, NEXT, late)
    bring_in(events, OLD, OLD)
    events.discover(NOW)
    assert closed(events) == []
    (ends,) = found(events)
    assert (ends.kind, ends.date) == ("history_part_ends", OLD)
    assert "--from 2026-02-02" in ends.remedy
    said = {item.kind: item.says for item in events.status(str(OLD), NOW).findings}
    assert said["close"].startswith("waits for the close: its history goes on with the next day")
    report = bring_in(events, NEXT)
    assert [change.delayed_objects for change in report.stream.changes] == [0]
    assert closed(events) == [OLD]
    assert found(events) == []
    assert events.ids() == ids(first, late)


def test_the_last_day_of_a_part_waits_while_the_next_part_is_registered(
    events: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing a large prefix takes minutes, and a catalog run comes between."""
    in_folder(events, OLD, old_rows())
    in_folder(events, NEXT, old_rows(hour=23))
    bring_in(events, OLD, OLD)
    seen: list[list[date]] = []
    register = run._register_page

    def register_later(*arguments: Any) -> Any:
        seen.append(closed(events))
        return register(*arguments)

    monkeypatch.setattr(run, "_register_page", register_later)
    report = bring_in(events, NEXT)
    assert seen == [[]]
    assert [change.delayed_objects for change in report.stream.changes] == [0]


def test_a_later_part_whose_registration_dies_is_told(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part ends with a day without rows, so no open day tells that the history goes on."""
    in_folder(events, OLD - timedelta(days=1), old_rows(OLD - timedelta(days=1)))
    bring_in(events, OLD - timedelta(days=1), OLD)
    rows = old_rows(NEXT)
    in_folder(events, NEXT, rows)
    with monkeypatch.context() as patch:
        patch.setattr(run, "_register_page", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            bring_in(events, NEXT, NEXT)
    events.discover(NOW)
    (late,) = found(events)
    assert (late.kind, late.count) == ("history_late", 1)
    bring_in(events)
    events.discover(NOW)
    assert found(events) == []
    events.catalog(NOW)
    assert set(ids(rows)) <= set(events.ids())


def test_a_part_that_is_cancelled_closes_its_last_day(events: World) -> None:
    in_folder(events, OLD, old_rows())
    bring_in(events, OLD, OLD)
    assert closed(events) == []
    cancel_history(events.context, "log.events")
    assert closed(events) == [OLD]


def test_a_run_that_ends_at_a_pause_says_so_and_fails(events: World) -> None:
    in_folder(events, OLD, old_rows())
    ask(events, "UPDATE prism_tables SET intake_paused_until = now() + interval '1 hour'")
    report = bring_in(events)
    (error,) = report.errors
    assert error.startswith("1 old object waits: the table takes in nothing while its columns flip")
    ask(events, "UPDATE prism_tables SET intake_paused_until = NULL")
    assert bring_in(events, None).errors == ()


def test_one_statement_finds_all_days_that_wait(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch can start meanwhile, and thousands of old days may be open."""
    for number in range(4):
        in_folder(events, OLD + timedelta(days=number), old_rows(OLD + timedelta(days=number)))
    bring_in(events)
    in_folder(events, OLD, old_rows())
    register_only(events, monkeypatch)
    (table,) = events.context.choose_tables(None)
    with events.context.database.begin() as connection:
        days = partitions.load_table_partitions(connection, table.table_id)
        with counted_statements() as asked:
            ready = StoredFacts(connection, table).without_history(days)
    assert len(asked) == 1
    assert [item.date for item in ready] == [OLD + timedelta(days=number) for number in range(1, 4)]


def test_figures_of_today_leave_a_history_out(events: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of Dagster would fail, because a history is at work, and show ages of years."""
    in_folder(events, OLD, old_rows())
    events.catalog(NOW)
    register_only(events, monkeypatch)
    plan = start_batch(events.context, None, claims.HISTORY)
    assert plan is not None
    (table,) = events.context.choose_tables(None)
    with events.context.database.begin() as connection:
        assert backlog.count_waiting(connection, [table.table_id], utc("2099-01-01T00:00")) == {}
        connection.exec_driver_sql("UPDATE prism_stream_batches SET heartbeat_time = now() - interval '1 hour'")
    events.stream(NOW)
    events.catalog(NOW)
    in_folder(events, OLD, old_rows())
    batch = bring_in(events).stream
    assert batch.objects == 1
    batch_ids = [row[0] for row in ask(events, "SELECT prism_stream_batch_id FROM prism_stream_batches")]
    with events.context.database.begin() as connection:
        assert arrivals_of_batches(connection, [table.table_id], batch_ids) == []
