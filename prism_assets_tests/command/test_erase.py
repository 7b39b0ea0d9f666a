"""`prism erase` for people: output, confirmation and exit status."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.flow.test_life_of_a_partition import _everything

DAY, OTHER = "2026-03-01", "2026-03-02"
EVENTS = "log.events"


@pytest.fixture
def filled(prism: Prism) -> Prism:
    """Twelve rows of two open days, with ids that begin with 1, and a broken line."""
    prism.world.apply(a_table(columns=["{name: text, type: string}"]))
    rows = [
        {**row, "id": number, "text": str(number)}
        for number, row in enumerate([*some_rows(8, utc(f"{DAY}T12:00")), *some_rows(4, utc(f"{OTHER}T00:05"))], 1)
    ]
    prism.world.drop([], body=as_lines(rows) + b"broken\n")
    prism.world.stream(f"{OTHER}T12:00")
    prism.world.catalog(f"{OTHER}T12:00")
    return prism


def test_a_dry_run_says_what_matches_by_day_and_changes_nothing(filled: Prism) -> None:
    before = _everything(filled.world)
    assert filled.ok("erase", EVENTS, "--where", "id IN (1, 9)", "--dry-run").out.splitlines() == [
        "log.events 2026-03-01: 1 row",
        "log.events 2026-03-02: 1 row, erased after the day closes, at 2026-03-03 00:00Z or later",
        "log.events: 2 of 12 rows match on 2 days; 2 of 2 objects are to be rewritten, 0.0 MB; 0 quarantined lines "
        "match, and 1 cannot be judged",
    ]
    (plan,) = filled.ok("erase", EVENTS, "--where", "id = 1", "--dry-run", "--json").json
    assert (plan["matching"], plan["rows"], plan["by_day"]) == (1, 12, {DAY: 1})
    assert _everything(filled.world) == before


def test_one_row_goes_without_more_typing_and_its_predicate_is_never_told(filled: Prism) -> None:
    said = filled.ok("erase", EVENTS, "--where", "id = 7 AND text = '7'").out
    assert said.startswith("erasure 1 of log.events is publishing: 1 row out of 1 object")
    filled.world.catalog(f"{OTHER}T12:00")
    assert filled.world.ids() == [number for number in range(1, 13) if number != 7]
    report = filled.ok("erase", "--continue", "--json").json
    assert [(item["state"], item["rows_erased"]) for item in report["erasures"]] == [("waiting", 1)]
    told = [filled.ok("erase", "--status", *more).out for more in ((), ("--json",))]
    assert "waits for the end of the reader lease" in told[0]
    assert not any("text" in line and "'7'" in line for line in told)
    assert filled.ok("erase", "--sources", "1").out == "s3://staging/events/2026/000001.gz\n"


@pytest.mark.parametrize(
    ("where", "said", "rows", "done"),
    [
        (
            "id > 0",
            "it matches every one of the 12 rows of the table: if that is meant, repeat with --rows 12",
            "12",
            ("8 rows out of 1 object", "4 rows match there, in 1 object"),
        ),
        (
            "id <= 3",
            "it matches 3 of 12 rows, more than 10%: if that is meant, repeat with --rows 3",
            "3",
            ("3 rows out of 1 object",),
        ),
    ],
)
def test_much_of_a_table_goes_only_where_the_number_of_rows_is_typed_again(
    filled: Prism, where: str, said: str, rows: str, done: tuple[str, ...]
) -> None:
    before = _everything(filled.world)
    for more in ((), ("--rows", str(int(rows) + 1))):
        refused = filled("erase", EVENTS, "--where", where, *more)
        assert (refused.status, refused.out) == (2, "")
        assert said in refused.err
        assert refused.err.endswith("nothing was erased\n")
    assert _everything(filled.world) == before
    out = filled.ok("erase", EVENTS, "--where", where, "--rows", rows).out
    assert [part for part in done if part not in out] == []


def test_rows_of_an_open_day_wait_for_its_close_or_for_the_option_that_closes_it(filled: Prism) -> None:
    filled.ok("erase", EVENTS, "--where", "id = 9")
    (waits,) = filled.ok("erase", "--status", "--json").json
    assert (waits["state"], waits["open_days"], waits["open_rows"]) == ("rewriting", [OTHER], 1)
    assert 9 in filled.world.ids()
    said = filled.ok("erase", "--close-open-days", "--now", f"{OTHER}T12:00").out
    assert said.startswith("erasure 1 of log.events is waiting: 1 row out of ")
    assert filled.world.ids() == [number for number in range(1, 13) if number != 9]


def test_closing_open_days_reports_the_erasure_of_the_predicate_and_follows_the_clock(filled: Prism) -> None:
    filled.ok("erase", EVENTS, "--where", "id = 1")
    erase_ninth = ("erase", EVENTS, "--where", "id = 9", "--close-open-days", "--now")
    assert filled.ok(*erase_ninth, f"{OTHER}T12:00").out.startswith("erasure 2 of log.events is waiting")
    later = f"{datetime.now(timezone.utc) + timedelta(days=10):%Y-%m-%dT%H:%M}"
    for _ in range(2):
        said = filled.ok(*erase_ninth, later).out.splitlines()
        assert len(said) == 1, "erasure 1 is of another predicate"
        assert said[0].startswith("erasure 2 of log.events is proved: 1 row out of ")


@pytest.mark.parametrize("more", ["--close-open-days", "--continue"])
def test_a_dry_run_without_a_predicate_is_refused_and_closes_no_day(filled: Prism, more: str) -> None:
    filled.ok("erase", EVENTS, "--where", "id = 9")
    before = _everything(filled.world)
    refused = filled("erase", EVENTS, more, "--dry-run")
    assert (refused.status, refused.out) == (2, "")
    assert "--dry-run prints the rows that --where matches" in refused.err
    assert _everything(filled.world) == before
    (waits,) = filled.ok("erase", "--status", "--json").json
    assert (waits["state"], waits["open_days"]) == ("rewriting", [OTHER])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (" ", "--where is empty: say which rows are to be erased"),
        ("userid = 1", "there is no column userid"),
        ("id = ", "--where: "),
        ("true", "--where names no column of the table: it would match every row or none"),
        ("id + 1", "--where: it must be true or false, and is of DuckDB's type BIGINT"),
        ("time < now()", "the function now is not allowed"),
        ("id IN (SELECT 1)", "--where: "),
    ],
)
def test_a_predicate_that_cannot_be_taken_is_refused_with_its_reason(filled: Prism, where: str, said: str) -> None:
    before = _everything(filled.world)
    for more in ((), ("--dry-run",)):
        done = filled("erase", EVENTS, "--where", where, *more)
        assert (done.status, done.out) == (2, "")
        assert said in done.err
    assert _everything(filled.world) == before


def test_a_predicate_that_fails_on_rows_is_told_by_a_dry_run_and_refused(filled: Prism) -> None:
    failing = ("erase", EVENTS, "--where", "CAST(text || 'x' AS bigint) = 1")
    assert filled.ok(*failing, "--dry-run").out.endswith("; it fails on 12 rows, such as by a cast\n")
    done = filled(*failing)
    assert (done.status, done.out) == (2, "")
    assert "--where fails on 12 rows, such as by a cast: write it so that it always has a result" in done.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        (EVENTS,),
        ("--where", "id = 1"),
        (EVENTS, "--where", "id = 1", "--continue"),
        (EVENTS, "--status", "--continue"),
    ],
    ids=["nothing", "a table alone", "no table", "two at once", "two others at once"],
)
def test_what_is_to_be_done_must_be_said_once(prism: Prism, words: tuple[str, ...]) -> None:
    done = prism("erase", *words)
    assert (done.status, done.out) == (2, "")
    assert "say which rows are to be erased" in done.err


def test_an_unknown_table_and_nothing_to_tell(filled: Prism) -> None:
    assert filled("erase", "log.none", "--where", "id = 1").status == 2
    assert filled.ok("erase", "--status").out == "nothing was ever erased\n"
    assert filled.ok("erase", "--continue").out == "no erasure waits for anything\n"


def age(prism: Prism, interval: str) -> None:
    """Has all erasures be so much older."""
    with prism.world.context.database.begin() as connection:
        times = ("create_time", "open_time", "rewritten_time")
        aged = ", ".join(f"{name} = {name} - interval '{interval}'" for name in times)
        connection.exec_driver_sql(f"UPDATE prism_erasures SET {aged}")


def test_an_erasure_that_should_be_proved_by_now_is_left_for_a_person(filled: Prism) -> None:
    now = f"{OTHER}T12:00"
    filled.ok("erase", EVENTS, "--where", "id = 7")
    idle = ("run", "--until-idle", "--now", now)
    said = filled.ok(*idle).out
    assert "later, by itself: log.events: erasure 1 is waiting and waits for the end of the reader lease" in said
    age(filled, "3 days 3 hours 50 minutes")  # the reader lease is 4 hours
    assert filled.ok(*idle).out.endswith("nothing is left for a person\n")
    assert filled.ok("erase", "--continue").err == ""
    age(filled, "10 minutes")
    for words in (idle, ("erase", "--continue")):
        done = filled(*words)
        assert done.status == 1
        assert "left for a person: log.events: erasure 1, made on " in done.err
        assert "should be proved by now: it is waiting, and waits for the end of the reader lease" in done.err
    assert (
        "should be proved by now: it is waiting, and waits for the end of the reader lease" in filled.ok("status").out
    )
    (finding,) = filled("doctor", "--json").json["findings"]
    assert (finding["invariant"], finding["kind"], finding["table"]) == ("I10", "unproved_erasure", EVENTS)
