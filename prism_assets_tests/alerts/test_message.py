"""The text of alerts: its parts, and values that must never appear."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from prism_assets.alerts.message import FailedRun, Repetition, redact, write_alert, write_attention


def a_run(number: int = 1, *, tables: tuple[str, ...] = ("log.events",), error: str = "the store is away") -> FailedRun:
    return FailedRun(
        run_id=f"{number:08}-1111",
        work="live",
        tables=tables,
        day="2026-03-01",
        error=error,
        link=f"https://dagster.example/runs/{number:08}-1111",
    )


def test_one_failed_run_is_one_line() -> None:
    alert = write_alert([a_run()])
    assert alert.subject == "prism: 1 run failed"
    assert alert.text == (
        "prism: 1 run failed, for log.events\n"
        "- live 2026-03-01, run 00000001, log.events: the store is away https://dagster.example/runs/00000001-1111"
    )


def test_hundreds_of_failed_runs_are_one_short_message() -> None:
    runs = [a_run(number, tables=(f"log.t{number:03}",), error="x" * 5_000) for number in range(300)]
    alert = write_alert(runs)
    assert alert.subject == "prism: 300 runs failed"
    assert len(alert.runs) == 10
    assert alert.text.splitlines()[0].endswith("log.t000, log.t001, log.t002, log.t003, log.t004, 5 more tables")
    assert alert.text.splitlines()[-1] == "… and 290 more runs"
    assert len(alert.text) < 6_000


def test_repetitions_are_told_behind_what_is_news() -> None:
    again = Repetition(work="live", error="the store is away", runs=7, since=datetime(2026, 3, 1, 14, 5))
    both = write_alert([a_run()], [again])
    assert (both.subject, both.failed, len(both.runs)) == ("prism: 8 runs failed", 8, 1)
    assert both.text.splitlines()[2] == "- live, 7 more runs since 14:05Z, as reported before: the store is away"
    alone = write_alert([], [again] * 12)
    assert alone.subject == "prism: 84 more runs failed"
    assert len(alone.text.splitlines()) == 12


def test_a_run_of_no_table_names_none() -> None:
    assert write_alert([a_run(tables=())]).text.splitlines() == [
        "prism: 1 run failed",
        "- live 2026-03-01, run 00000001: the store is away https://dagster.example/runs/00000001-1111",
    ]


def test_an_error_of_several_lines_becomes_one() -> None:
    assert "a b c" in write_alert([a_run(error="a\n  b\nc")]).text


def test_secrets_are_hidden() -> None:
    error = "cannot open postgresql://prism:hush-hush@db/prism with hush-hush; sc://spark:15002/;token=abcd&x=1"
    text = redact(error, {"hush-hush"})
    assert text == "cannot open postgresql://***@db/prism with ***; sc://spark:15002/;token=***&x=1"


def test_places_that_are_no_secret_stay() -> None:
    text = "s3://staging/events/2026/000001.gz: 5 lines; mail to data@example.org"
    assert redact(text, {"", "abc"}) == text


@given(st.text(min_size=4).filter(lambda secret: secret not in "***@ prism: run failed, for no table"), st.text())
def test_no_secret_is_left_in_any_error(secret: str, around: str) -> None:
    hidden = redact(f"{around} {secret} {around}", {secret})
    assert secret not in hidden or secret in "***@" or "***" in secret


def test_attention_is_one_message_of_what_is_new_lasts_and_ended() -> None:
    alert = write_attention(["log.a: x"], ["log.b: y", "log.c: z"], ["log.d"])
    assert alert.text.splitlines() == [
        "prism: 1 needs attention, 2 still do, 1 ended",
        "- log.a: x",
        "- still: log.b: y",
        "- still: log.c: z",
        "- ended: log.d",
    ]
    many = write_attention(["x" * 5_000] * 300)
    assert many.text.splitlines()[-1] == "- … and 290 more"
    assert len(many.text) < 6_000
