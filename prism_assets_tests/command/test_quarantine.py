"""Quarantine in lists for people: by table, day and reason, complete on a terminal of 80 columns, and the lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.stages.quarantine import as_document
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism, environment
from prism_assets_tests.command.test_errors import fails

NOON, NEXT = "2026-03-01T12:00", "2026-03-02T12:00"
LONG = f"{'a-host-name-as-fleets-have-them.' * 3}json"


@pytest.fixture
def full(prism: Prism) -> Prism:
    """Two tables with lines in quarantine, for several reasons, on two days."""
    prism.world.apply(a_table(columns=["{name: amount, type: integer}"]), a_table("log.others"))
    prism.world.drop([*some_rows(3, utc(NOON), amount=1), "no row", {"id": 1}], name=LONG)
    prism.world.drop(["no row", "no row"], stream="others")
    assert prism("run", "--now", NOON).status == 1, "it sets most lines of log.others aside"
    change(prism, f"UPDATE prism_quarantine SET create_time = '{NOON}Z'")
    prism.world.drop(["no row"])
    assert prism("run", "--now", NEXT).status == 1
    change(prism, f"UPDATE prism_quarantine SET create_time = '{NEXT}Z' WHERE create_time > '{NOON}Z'")
    return prism


def change(prism: Prism, statement: str) -> None:
    """Has something have happened at another time than now."""
    with prism.world.context.database.begin() as connection:
        assert connection.exec_driver_sql(statement).rowcount


def chosen(prism: Prism, *words: str) -> list[tuple[str, str, str, int]]:
    rows = prism.ok("quarantine", "list", "--json", *words).json
    return [(row["table"], row["create_time"][:10], row["reason"], row["line_count"]) for row in rows]


FIRST = [("log.events", "2026-03-01", "missing_time", 1), ("log.events", "2026-03-01", "not_object", 1)]
LATER = ("log.events", "2026-03-02", "not_object", 1)
OTHERS = ("log.others", "2026-03-01", "not_object", 2)


CHOICES: Mapping[tuple[str, ...], Sequence[tuple[str, str, str, int]]] = {
    (): [LATER, OTHERS, *FIRST],
    ("--table", "log.events"): [LATER, *FIRST],
    ("--table", "log.others", "--table", "log.events"): [LATER, OTHERS, *FIRST],
    ("--date", "2026-03-01"): [OTHERS, *FIRST],
    ("--date", "0001-01-01"): [],
    ("--date", "9999-12-31"): [],
    ("--reason", "missing_time"): FIRST[:1],
    ("--reason", "missing_time", "--reason", "not_object", "--limit", "1"): [LATER],
    ("--table", "log.events", "--date", "2026-03-02", "--reason", "not_object"): [LATER],
    ("--table", "log.events", "--reason", "bad_json"): [],
}


def test_a_list_is_chosen_by_table_day_and_reason(full: Prism) -> None:
    found = {words: sorted(chosen(full, *words)) for words in CHOICES}
    assert found == {words: sorted(lots) for words, lots in CHOICES.items()}


def test_the_origin_of_a_lot_is_readable_at_80_columns(full: Prism) -> None:
    """In a separate process, because a terminal's width is fixed at the start."""
    wanted = {**os.environ, **environment(full.world), "COLUMNS": "80"}
    command = [sys.executable, "-m", "prism_assets.cli", "quarantine", "list", "--table", "log.events"]
    done = subprocess.run(command, env=wanted, cwd=full.world.root, capture_output=True, text=True, check=True)
    assert f"    s3://staging/events/2026/{LONG}.gz\n" in done.stdout
    assert "log.events missing_time: 1 line, object " in done.stdout
    assert "…" not in done.stdout


def test_a_list_that_ends_at_its_limit_says_so(full: Prism) -> None:
    assert "these are the newest 1; --limit shows more" in full.ok("quarantine", "list", "--limit", "1").out
    assert "these are" not in full.ok("quarantine", "list").out
    assert full.ok("quarantine", "list", "--reason", "bad_json").out == "no such line is in quarantine\n"


def test_lines_in_quarantine_are_shown_line_by_line_and_as_one_document(prism: Prism) -> None:
    prism.world.apply(a_table())
    prism.world.drop(["no row", "a,\\nb", {"id": 1}])
    assert prism("run", "--now", NOON).status == 1
    number = str(prism.ok("quarantine", "list", "--json").json[0]["staging_object_id"])
    lines = [json.loads(line) for line in prism.ok("quarantine", "show", number).out.splitlines()]
    assert len(lines) == 3
    assert prism.ok("quarantine", "show", number, "--json").json == lines


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers()), min_size=1), st.integers(1, 20))
def test_lines_are_one_document_however_they_come_in_pieces(lines: list[dict[str, Any]], size: int) -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    pieces = [b"", *(text[start : start + size] for start in range(0, len(text), size)), b""]
    assert json.loads(b"".join(as_document(pieces))) == lines


def test_wrong_words_for_a_list_of_quarantine(full: Prism) -> None:
    fails(full("quarantine", "list", "--table", "log.nothing"), 2, "there is no table log.nothing")
    fails(full("quarantine", "list", "--date", "2026-02-30"), 2, "2026-02-30 is not a date")
    assert full("quarantine", "list", "--limit", "0").status == 2


@pytest.fixture
def unfit(prism: Prism) -> Prism:
    """A table with values that did not fit their columns."""
    columns = ["{name: amount, type: integer}", "{name: size, type: smallint}"]
    prism.world.apply(a_table(columns=columns), a_table("log.others"))
    prism.world.drop([*some_rows(3, utc(NOON), amount="many", size=1), *some_rows(2, utc(NOON), amount=1, size=99_999)])
    said = prism.ok("run", "--now", NOON).out
    told = "; 5 values did not fit, null or cut now: `prism status --table TABLE` says of which columns"
    assert said.splitlines()[0].endswith(told)
    return prism


def test_values_that_became_null_are_told_by_column_and_reason(unfit: Prism) -> None:
    said = unfit.ok("status", "--table", "log.events", "--now", NOON).out
    assert (
        "log.events: values of the last 7 days that did not fit (null, or cut)\n"
        "    amount: 3 unfit\n    size: 2 out_of_range\n"
    ) in said
    (status,) = unfit.ok("status", "--table", "log.events", "--now", NOON, "--json").json
    assert [(item["column"], item["reason"], item["count"]) for item in status["unfit_values"]] == [
        ("amount", "unfit", 3),
        ("size", "out_of_range", 2),
    ]
    everything = unfit.ok("status", "--now", NOON, "--json").json
    assert {status["unfit_values"] for status in everything} == {None}, "not counted, which is not none"


def test_values_that_became_null_long_ago_or_elsewhere_are_not_told(unfit: Prism) -> None:
    change(unfit, f"UPDATE prism_staging_objects SET finish_time = '{NOON}Z'")
    assert "did not fit" not in unfit.ok("status", "--table", "log.events", "--now", "2026-03-08T12:01").out
    assert "did not fit" not in unfit.ok("status", "--table", "log.others", "--now", NOON).out


def test_lines_that_are_rows_now_are_replayed(prism: Prism) -> None:
    noon = "2026-03-01T12:00"
    prism.world.apply(a_table() + 'reject: [{when: "id > 0", reason: not_yet}]\n')
    prism.world.drop(some_rows(2, utc(noon)))
    prism.world.stream(noon)
    prism.world.apply(a_table())
    replay = ("quarantine", "replay", "log.events")
    planned = "log.events: convert 1 object with 2 lines in quarantine again, under version 2 of the definition\n"
    assert prism.ok(*replay, "--dry-run", "--reason", "not_yet").out == planned
    done = prism.ok(*replay, "--now", f"{noon}:00Z").out
    assert done.endswith("2 rows more of these objects, and no line of them is in quarantine now\n")
    assert prism.ok(*replay, "--json").json["objects"] == 0
    assert prism("quarantine", "replay", "log.other").status == 2
