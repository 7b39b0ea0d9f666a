"""Expressions of table files, from `prism table apply` to rows, ledger and checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.checks.intake import ROWS_BALANCE
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
MASKED = (
    a_table(
        columns=[
            "{name: email, type: string, stored: false, sensitive: true}",
            '{name: email_hash, type: string, length: 64, value: "sha256(lower(trim(email)))"}',
            "{name: status, type: integer}",
            "{name: kind, type: string, value: \"CASE WHEN status >= 400 THEN 'bad' ELSE 'good' END\"}",
        ]
    )
    + "keep: status < 500\nreject: [{when: status < 0, reason: negative_status}]\n"
)


def ledger(world: World) -> Any:
    statement = "SELECT lines_in, rows_out, rows_quarantined, rows_filtered FROM prism_staging_objects"
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def test_lines_become_rows_with_computed_columns_and_the_ledger_counts_what_was_filtered(world: World) -> None:
    world.apply(MASKED)
    rows = some_rows(4, utc(NOON))
    statuses = [200, 404, 500, -1]
    world.drop([row | {"status": status, "email": " Ann@X.org "} for row, status in zip(rows, statuses, strict=True)])
    report = world.stream(NOON)
    world.catalog(NOON)
    assert (report.lines_in, report.rows_out, report.quarantined, report.filtered) == (4, 2, 1, 1)
    assert ledger(world) == [(4, 2, 1, 1)]
    found = world.query("SELECT status, kind, email_hash FROM log.events ORDER BY status")

    assert [tuple(row)[:2] for row in found] == [(200, "good"), (404, "bad")]
    assert {len(tuple(row)[2]) for row in found} == {64}
    assert check(world, ROWS_BALANCE, NOON).sentence.startswith("4 lines in = 2 rows out + 1 quarantined + 1 filtered")


def test_a_change_of_an_expression_is_a_new_version_and_told(world: World) -> None:
    world.apply(MASKED)
    assert world.apply(MASKED).lines == ()
    plan = world.apply(MASKED.replace("status < 500", "status < 400"))
    assert plan.lines == ("keep rows of log.events only where status < 400",)


NOT_COMPUTED = (
    "it cannot be computed: No function matches the given name and argument types 'lower(BIGINT)'. You might need to "
    "add explicit type casts."
)
REFUSED = {
    "no SQL": ("id +", 'this is no SQL expression: syntax error at or near "+" (at character 4)'),
    "a word of SQL": (
        "lower(table)",
        'this is no SQL expression: syntax error at or near "table"; table is a word of SQL: write "table" where it '
        "names a column (at character 7)",
    ),
    "an open bracket": ("abs(id", 'this is no SQL expression: syntax error at or near "id" (at character 5)'),
    "an unknown column": ("lower(idd)", "there is no column idd above this one; did you mean id? (at character 7)"),
    "a column below": ("later", "there is no column later above this one"),
    "a forbidden function": ("random()", "the function random is not allowed"),
    "a clock": ("now()", "the function now is not allowed: its result hangs on more than its arguments"),
    "a misspelt function": ("lowwer('A')", "there is no function lowwer; did you mean lower?"),
    "a file": ("(SELECT max(content) FROM read_text('/etc/passwd'))", "expressions see one row and no table"),
    "an aggregate": ("sum(id)", "the function sum is not allowed"),
    "a window": ("row_number() OVER ()", "expressions see one row: no window functions"),
    "a setting": ("getvariable('prism_mail_outer')", "the function getvariable is not allowed"),
    "brackets that are not its own": (
        "1), (2",
        'this is no SQL expression: syntax error at or near ")" (at character 2)',
    ),
    "any size": ("repeat('x', id)", "repeat needs its length as a number of at most 256"),
    "size upon size": ("repeat(repeat('x', 9), 9)", "repeat takes no text that lpad or rpad or repeat makes"),
    "size upon size in another": ("replace(repeat('x', 9), 'x', 'yy')", "replace takes no text that lpad or rpad"),
    "time without end": ("levenshtein('a', 'b')", "the function levenshtein is not allowed"),
    "a name of ours": ("list_transform([1], lambda unnamed_subquery: 1)", "a lambda cannot call its argument"),
    "types that do not fit": ("abs(id) + length(lower(id))", f"{NOT_COMPUTED} (at character 18)"),
    "types in the middle of a long line": (
        "id || " * 60 + "lower(id)" + " || id" * 60,
        f"{NOT_COMPUTED} (at character 361)",
    ),
    "types behind tabs": ("\t\tlower(id)", f"{NOT_COMPUTED} (at character 3)"),
    "types behind wide characters": ("'日本語' || lower(id)", f"{NOT_COMPUTED} (at character 10)"),
    "types in a further line": ("id ||\n  lower(id)", f"{NOT_COMPUTED} (at character 9)"),
    "bytes": ("unhex('00')", "of DuckDB's type BLOB cannot become string"),
    "a secret that is computed": ("pseudonym('a', lower('MAIL'))", "the second argument of pseudonym is the name"),
    "half a character": ("'\ud83d'", "has a NUL or half a character in it (at character 2)"),
    "a zone": ("CAST('2026-01-01' AS timestamptz)", "times are timestamps in UTC here"),
}


def test_expressions_of_a_file_are_checked_also_where_another_file_is_wrong(world: World) -> None:
    with pytest.raises(DefinitionError) as refused:
        world.apply(a_table(columns=["{name: wrong, type: string, value: id +}"]), a_table("log.others") + "oops: 1\n")
    problems = [line.split(": ")[1] for line in str(refused.value).splitlines()]
    assert problems == ["oops", "columns[2].value"]


@pytest.mark.parametrize("name", REFUSED)
def test_apply_refuses_a_wrong_expression_with_its_line_and_field(world: World, name: str) -> None:
    value, message = REFUSED[name]
    columns = [
        f"{{name: wrong, type: string, value: {json.dumps(value)}}}",
        "{name: later, type: string, value: \"'x'\"}",
    ]
    with pytest.raises(DefinitionError) as refused:
        world.apply(a_table(columns=columns))
    (problem,) = str(refused.value).splitlines()
    assert problem.startswith(f"{world.settings.tables_dir}/events.yaml:11: columns[2].value: {message}")


def test_a_condition_that_is_no_condition_is_refused(world: World) -> None:
    with pytest.raises(DefinitionError, match="yaml:13: keep: it must be true or false, and is of"):
        world.apply(a_table() + "keep: id + 1\n")


def test_a_wrong_file_keeps_no_other_table_from_its_change(world: World) -> None:
    world.settings.tables_dir.mkdir()
    (world.settings.tables_dir / "a.yaml").write_text(a_table("log.wrong") + "keep: now() > time\n")
    (world.settings.tables_dir / "b.yaml").write_text(a_table("log.right") + "keep: id > 0\n")
    plan = apply_sound(world.context, world.settings.tables_dir, utc(NOON))
    assert [str(table.name) for table in plan.tables] == ["log.right"]
    assert len(plan.problems) == 1


def test_a_secret_that_the_worker_lacks_holds_the_object_back_and_says_what_to_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(a_table(columns=["{name: who, type: string, value: \"pseudonym(CAST(id AS VARCHAR), 'mail')\"}"]))
    monkeypatch.delenv("PRISM_SECRET_MAIL", raising=False)
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    with world.context.database.begin() as connection:
        row = connection.exec_driver_sql("SELECT state, last_error FROM prism_staging_objects").one()
    assert row.state == "pending"
    assert "PRISM_SECRET_MAIL" in row.last_error
