"""The window of event dates: its start, and its safety against wrong clocks and keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.tables.accepted import DateRange, accepted_days
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.work.convert import ConvertTask
from prism_assets_tests.builders import a_table, utc

PLAIN = "events/x.gz"
NAMED = "2528.dwh.log.events/{}/x.gz"


def table(accept: str = "{past_days: 2, future_days: 1}", zone: str = "UTC") -> TableDefinition:
    return parse_table_file(a_table(accept=accept, timezone=zone), "t.yaml")


def task(key: str = PLAIN, *, sent: str | None = None, received: str = "2026-03-20T12:00") -> ConvertTask:
    return ConvertTask(
        staging_object_id=1,
        bucket="staging",
        key=key,
        etag=None,
        content_length=1,
        received=utc(received),
        sent=utc(sent) if sent else None,
        stream_name="events",
        delayed_dates=frozenset(),
        table_id=1,
        definition_version=1,
    )


def days(first: str, last: str) -> DateRange:
    return DateRange(date.fromisoformat(first), date.fromisoformat(last))


def test_it_counts_from_when_the_bucket_got_the_object() -> None:
    assert accepted_days(table(), task(sent="2026-03-01T12:00")) == days("2026-02-27", "2026-03-02")


def test_it_counts_from_arrival_where_nobody_told_when_the_bucket_got_it() -> None:
    assert accepted_days(table(), task()) == days("2026-03-18", "2026-03-21")


def test_it_counts_from_arrival_where_the_table_says_so() -> None:
    arrival = table("{past_days: 2, future_days: 1, from: arrival}")
    key = NAMED.format("2018/08/23")
    assert accepted_days(arrival, task(key, sent="2026-03-01T12:00")) == days("2026-03-18", "2026-03-21")


def test_the_date_in_a_key_goes_before_the_time_of_the_bucket() -> None:
    """A bucket knows the time of a copy of history, not the original time."""
    key = NAMED.format("2018/08/23")
    assert accepted_days(table(), task(key, sent="2026-03-01T12:00")) == days("2018-08-21", "2018-08-24")


@pytest.mark.parametrize("key", [NAMED.format("2018/02/30"), NAMED.format("2018/8/23"), "events/dt=2018/x.gz"])
def test_a_key_that_names_no_date_is_passed_over(key: str) -> None:
    assert accepted_days(table(), task(key, sent="2026-03-01T12:00")) == days("2026-02-27", "2026-03-02")


@pytest.mark.parametrize(
    "folders", ["dt=2018-08-23", "year=2018/month=08/day=23", "2018/08/23", "2018/08/23/14", "dt=2018-08-23/hour=14"]
)
def test_the_date_of_folders_lets_in_history_and_makes_no_row_too_new(folders: str) -> None:
    """Objects may be in the folder of the day they were sent, with rows of this day or later ones."""
    found = accepted_days(table(), task(f"events/{folders}/x.gz", sent="2026-03-01T12:00"))
    assert found == days("2018-08-21", "2026-03-02")


def test_the_date_of_folders_never_narrows_the_window_of_the_store() -> None:
    late = table("{past_days: 0, future_days: 9}")
    assert accepted_days(late, task("events/dt=2026-03-02/x.gz", sent="2026-03-01T12:00")) == days(
        "2026-03-01", "2026-03-11"
    )


@pytest.mark.parametrize("folders", ["dt=2026-03-03", "2099/01/01"])
def test_folders_of_the_future_are_those_of_a_wrong_clock(folders: str) -> None:
    found = accepted_days(table(), task(f"events/{folders}/x.gz", sent="2026-03-01T12:00"))
    assert found == days("2026-02-27", "2026-03-02")


@pytest.mark.parametrize("day", ["2026/03/03", "2099/01/01", "9999/12/31"])
def test_a_key_of_the_future_is_that_of_a_wrong_clock(day: str) -> None:
    key = NAMED.format(day)
    assert accepted_days(table(), task(key, sent="2026-03-01T12:00")) == days("2026-02-27", "2026-03-02")


def test_a_writer_in_the_east_may_be_a_day_ahead() -> None:
    ahead = task(NAMED.format("2026/03/02"), sent="2026-03-01T12:00")
    assert accepted_days(table(), ahead) == days("2026-02-28", "2026-03-03")


def test_a_date_in_a_key_has_a_day_on_either_side_as_nobody_names_its_zone() -> None:
    """A UTC writer puts the morning rows of Tokyo under yesterday's date."""
    narrow = table("{past_days: 0, future_days: 0}", zone="Asia/Tokyo")
    key = NAMED.format("2026/03/01")
    assert accepted_days(narrow, task(key, sent="2026-03-01T23:00")) == days("2026-02-28", "2026-03-02")
    assert accepted_days(narrow, task(sent="2026-03-01T23:00")) == days("2026-03-02", "2026-03-02")


def test_a_wrong_clock_here_moves_nothing() -> None:
    late, early = (task(sent="2026-03-01T12:00", received=f"{year}-03-01T12:00") for year in (2035, 2016))
    assert accepted_days(table(), late) == accepted_days(table(), early) == days("2026-02-27", "2026-03-02")


def test_its_days_are_those_from_the_first_to_the_last() -> None:
    found = days("2026-02-27", "2026-03-02")
    assert [day.isoformat() for day in found] == ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
    assert date(2026, 2, 27) in found
    assert date(2026, 3, 2) in found
    assert date(2026, 2, 26) not in found
    assert date(2026, 3, 3) not in found


instants = st.datetimes(timezones=st.just(timezone.utc))
keys = st.just(PLAIN) | st.dates().map(lambda day: NAMED.format(f"{day.year:04}/{day.month:02}/{day.day:02}"))


@given(
    keys, st.none() | instants, instants, st.integers(0, 3_650), st.sampled_from(["UTC", "Asia/Tokyo", "Etc/GMT+12"])
)
def test_every_key_and_every_time_has_a_window_around_some_day(
    key: str, sent: datetime | None, received: datetime, past: int, zone: str
) -> None:
    """Messages and keys may name any time: none may stop a batch."""
    found = accepted_days(table(f"{{past_days: {past}}}", zone), replace(task(key), sent=sent, received=received))
    assert found.first <= found.last
    assert found.last - found.first <= timedelta(days=max(past, 1) + 3)
