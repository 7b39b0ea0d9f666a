"""The exporter over a real lake: the figures, alerts that clear, and looks that fail."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta

import pytest

from prism_assets.domain.metrics import BY_NAME, Kind, series_of
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.metadata.database import Database
from prism_assets.metadata.intake import history
from prism_assets.metadata.intake.claims import HISTORY
from prism_assets.metrics.text import render
from prism_assets.stages.exporter import exporter as exporter_module
from prism_assets.stages.exporter import totals
from prism_assets.stages.exporter.exporter import Exporter
from prism_assets.stages.history.plan import Listed, choose_streams, pages
from prism_assets.stages.live.worker import LiveOptions, LiveWorker
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.unread import retry_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metrics.scraped import values_of
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World

NOON, NEXT_DAY = "2026-03-01T12:00", "2026-03-02T06:00"
EVENTS = '{table="log.events"}'
GIVEN_UP = 'prism_findings{acts="person",kind="unread_objects",table="log.events"}'
UNREAD = 'prism_check_failed{check="unread_objects",severity="warning",table="log.events"}'


@pytest.fixture(autouse=True)
def _nothing_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters count at once, as no other process commits here."""
    monkeypatch.setattr(totals, "_SETTLED", timedelta(0))


def an_exporter(world: World, tell: Callable[[str], None] = lambda _text: None) -> Exporter:
    return Exporter(world.context, clock=lambda: utc(NOON), tell=tell)


def look(exporter: Exporter) -> dict[str, float]:
    """Takes both looks, and returns the scraped values."""
    exporter.look("tables")
    exporter.look("attention")
    assert exporter.why_not_ready == ""
    return values_of(render(exporter.samples()))


def test_a_table_shows_what_waits_and_then_what_was_done(world: World) -> None:
    world.apply(a_table("log.events"))
    exporter = an_exporter(world)
    before = look(exporter)
    assert before[f"prism_table_rows_total{EVENTS}"] == 0
    assert f"prism_table_last_rows_timestamp_seconds{EVENTS}" not in before
    world.drop(some_rows(10, utc(NOON)))
    world.drop([], body=b"no line of JSON\n")
    world.discover(NOON)
    waiting = look(exporter)
    assert waiting[f"prism_table_pending_objects{EVENTS}"] == 2
    assert 0 < waiting[f"prism_table_lag_seconds{EVENTS}"] < 3_600
    world.stream(NOON)
    done = look(exporter)
    assert done[f"prism_table_pending_objects{EVENTS}"] == done[f"prism_table_lag_seconds{EVENTS}"] == 0
    assert done[f"prism_table_rows_total{EVENTS}"] == 10
    assert done[f"prism_table_quarantined_lines_total{EVENTS}"] == 1
    assert done[f"prism_table_latency_seconds_count{EVENTS}"] == 2
    assert done['prism_table_latency_seconds_bucket{le="3600.0",table="log.events"}'] == 2
    assert done['prism_step_runs_total{outcome="done",step="stream"}'] == 1
    assert abs(done[f"prism_table_last_rows_timestamp_seconds{EVENTS}"] - time.time()) < 600
    world.catalog(NEXT_DAY)
    world.merge(NEXT_DAY, everything=True)
    merged = look(exporter)
    assert merged[f"prism_table_rows_total{EVENTS}"] == 10
    assert merged[f"prism_table_merged_rows_total{EVENTS}"] == 10
    assert merged['prism_step_runs_total{outcome="done",step="merge"}'] == 1


def test_a_history_makes_no_table_late(world: World) -> None:
    """Its objects are months old, and would fire the alerts on lag for as long as it runs."""
    world.apply(
        a_table("log.events", stream='url: "s3://staging/events/", since: "2026-03-01"', accept="{from: object}")
    )
    key = world.drop(some_rows(3, utc("2026-02-01T10:00")), stream="events/dt=2026-02-01")
    month_ago = time.time() - 30 * 86_400
    os.utime(world.root / "buckets" / "staging" / key, (month_ago, month_ago))
    exporter = an_exporter(world)
    look(exporter)
    known = choose_streams(world.context, world.context.choose_tables(["log.events"])[0])[0]
    for page in pages(world.context, known, DateRange(date(2026, 2, 1), date(2026, 2, 1)), Listed()):
        with world.context.database.begin() as connection:
            history.register(connection, known.stream_id, known.table_id, page, utc(NOON))
    plan = start_batch(world.context, None, HISTORY)
    assert plan is not None
    claimed = look(exporter)
    assert (claimed[f"prism_table_claimed_objects{EVENTS}"], claimed[f"prism_table_lag_seconds{EVENTS}"]) == (1, 0)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_batches SET heartbeat_time = now() - interval '1 hour'")
    world.stream(NOON)
    done = look(exporter)
    assert done[f"prism_table_rows_total{EVENTS}"] == 3
    assert done[f"prism_table_latency_seconds_count{EVENTS}"] == done[f"prism_table_latency_seconds_sum{EVENTS}"] == 0


EMPTY = """
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length,
    first_receive_time, state, lines_in, rows_out, rows_quarantined, finish_time)
    SELECT prism_stream_id, prism_table_id, bucket_name, 'empty/' || clock_timestamp() || n, 1, now(), 'done', 0, 0, 0,
        finish_time + n * interval '1 s'
    FROM generate_series(1, 1000) n,
    LATERAL (SELECT * FROM prism_staging_objects ORDER BY finish_time DESC LIMIT 1) last
"""
"""A thousand conversions without rows, after the last conversion."""


def test_objects_without_rows_do_not_make_a_table_fresh(world: World) -> None:
    world.apply(a_table("log.events"))
    world.drop(some_rows(3, utc(NOON)))
    world.discover(NOON)
    world.stream(NOON)
    running = an_exporter(world)
    last_rows = f"prism_table_last_rows_timestamp_seconds{EVENTS}"
    known = look(running)[last_rows]
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(EMPTY)
    assert look(running)[last_rows] == known
    started_again = an_exporter(world)
    bound = look(started_again)[last_rows]
    assert bound == pytest.approx(known + 1)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(EMPTY)
    assert look(started_again)[last_rows] == bound
    world.drop(some_rows(3, utc(NOON)))
    world.discover(NOON)
    world.stream(NOON)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_staging_objects SET finish_time = now() + interval '1 day' WHERE rows_out > 0"
        )
    assert look(started_again)[last_rows] > bound


def test_a_broken_object_is_a_finding_and_a_failed_check_until_a_person_decides(world: World) -> None:
    world.apply(a_table("log.events"))
    exporter = an_exporter(world)
    assert look(exporter)[UNREAD] == 0
    key = world.drop(some_rows(3, utc(NOON)))
    world.discover(NOON)
    path = world.root / "buckets" / "staging" / key
    content = path.read_bytes()
    path.unlink()
    for _ in range(world.settings.max_attempts):
        rest_is_over(world)
        world.stream(NOON)
    broken = look(exporter)
    assert (broken[GIVEN_UP], broken[UNREAD]) == (1, 1)
    assert broken[f"prism_table_given_up_objects{EVENTS}"] == 1
    path.write_bytes(content)
    retry_object(world.context, f"s3://staging/{key}")
    world.stream(NOON)
    mended = look(exporter)
    assert GIVEN_UP not in mended
    assert (mended[UNREAD], mended[f"prism_table_given_up_objects{EVENTS}"]) == (0, 0)


def test_live_workers_are_counted_while_they_live(world: World) -> None:
    world.apply(a_table("log.events"))
    exporter = an_exporter(world)
    assert look(exporter)['prism_workers{state="alive"}'] == 0
    worker = LiveWorker(world.context, LiveOptions(), clock=lambda: utc(NOON))
    worker._holdings.beat()
    values = look(exporter)
    assert (values['prism_workers{state="alive"}'], values["prism_live_tables"]) == (1, 1)


def test_limits_come_from_the_table_files(world: World) -> None:
    world.apply(a_table("log.events") + "freshness: {fail: 2h}\n")
    assert look(an_exporter(world))[f"prism_table_freshness_limit_seconds{EVENTS}"] == 7_200


def test_statements_do_not_grow_with_the_number_of_tables(world: World) -> None:
    world.apply(a_table("log.events"))
    exporter = an_exporter(world)
    exporter.look("tables")
    with counted_statements() as one:
        exporter.look("tables")
    world.apply(*(a_table(f"log.more{number}") for number in range(5)))
    with counted_statements() as six:
        exporter.look("tables")
    assert len(six) == len(one) < 25


def test_tables_above_the_limit_are_counted_and_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_module, "MOST_TABLES", 2)
    world.apply(*(a_table(f"log.t{number}") for number in range(3)))
    values = look(an_exporter(world))
    assert (values["prism_exporter_tables"], values["prism_exporter_tables_left_out"]) == (2, 1)
    assert not any("log.t2" in series for series in values)


def test_a_failed_look_keeps_the_last_values_and_says_so_once(world: World) -> None:
    world.apply(a_table("log.events"))
    told: list[str] = []
    exporter = an_exporter(world, told.append)
    look(exporter)
    gone = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    living, exporter._context = exporter._context, replace(world.context, database=gone)
    for _ in range(2):
        exporter.look("tables")
    values = values_of(render(exporter.samples()))
    assert values['prism_exporter_up{look="tables"}'] == 0
    assert f"prism_table_pending_objects{EVENTS}" in values
    assert "PostgreSQL" in exporter.why_not_ready
    assert (len(told), exporter.why_not_live) == (1, "")
    exporter._context = living
    assert look(exporter)['prism_exporter_up{look="tables"}'] == 1
    assert told[1:] == ["the look at tables succeeds again"]


def test_every_metric_of_the_exporter_appears_once_it_has_a_value(world: World) -> None:
    """Topics have tests of their own; every other metric of the list is really measured."""
    world.apply(a_table("log.events") + "freshness: {fail: 2h}\n")
    world.drop(some_rows(10, utc(NOON)))
    world.discover(NOON)
    exporter = an_exporter(world)
    look(exporter)
    world.stream(NOON)
    found = {series.partition("{")[0] for series in look(exporter)}
    wanted = {name for item in BY_NAME.values() if item.source.value == "prism exporter" for name in series_of(item)}
    assert {name for name in wanted - found if "topic" not in name} == {"prism_table_stopped_partitions"}
    assert {name for name in found if name not in wanted} == set()
    assert [item.kind for item in BY_NAME.values() if item.name.endswith("_total")] == [Kind.COUNTER] * sum(
        item.kind is Kind.COUNTER for item in BY_NAME.values()
    )


def test_work_that_ends_during_a_slow_look_is_counted_by_the_next_one(world: World) -> None:
    """The look sees the database as it was at its begin."""
    world.apply(a_table("log.events"))
    counters, names = totals.Totals(), {world.context.choose_tables(None)[0].table_id: "log.events"}
    database = world.context.database
    with database.repeatable_read() as connection:
        counters.add_work(connection, names)
    with database.repeatable_read() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM prism_tables")
        world.drop(some_rows(10, utc(NOON)))
        other = threading.Thread(target=lambda: (world.discover(NOON), world.stream(NOON)))
        other.start()
        other.join()
        counters.add_work(connection, names)
    with database.repeatable_read() as connection:
        counters.add_work(connection, names)
    values = values_of(render(counters.samples()))
    assert values[f"prism_table_rows_total{EVENTS}"] == 10
    assert values['prism_step_runs_total{outcome="done",step="stream"}'] == 1


def test_counters_of_tables_that_are_gone_end(world: World) -> None:
    world.apply(a_table("log.events"))
    counters, number = totals.Totals(), world.context.choose_tables(None)[0].table_id
    for name in ("log.old", "log.events"):
        with world.context.database.repeatable_read() as connection:
            counters.add_work(connection, {number: name})
    series = values_of(render(counters.samples()))
    assert not any("log.old" in name for name in series)
    assert f"prism_table_latency_seconds_count{EVENTS}" in series


@pytest.mark.parametrize(
    ("version", "sentence"), [("9999", "which this code does not know"), ("0000", "run `prism table apply` first")]
)
def test_tables_of_another_release_are_not_measured(world: World, version: str, sentence: str) -> None:
    world.apply(a_table("log.events"))
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")
    exporter = an_exporter(world)
    exporter.look("tables")
    exporter.look("attention")
    assert sentence in exporter.why_not_ready
    assert not any(name.startswith("prism_table_") for name in values_of(render(exporter.samples())))
