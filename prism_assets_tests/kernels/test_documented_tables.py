"""The table of docs/tables.md is one that `prism table apply` takes, its cases hold, and a mistake is told as there."""

from __future__ import annotations

import re
from pathlib import Path

from prism_assets.domain.change_log import tables_of
from prism_assets.domain.table_file import parse_table_file
from prism_assets.drafting.cases import cases_of, run_cases
from prism_assets.kernels.expressions.check import problems_of_table
from prism_assets.kernels.protobuf.check import problems_of_streams
from prism_assets_tests.kernels.protoc import descriptor_set

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
CASES = re.findall(r"```\n(\{\"about\".*?)```", PAGE.read_text(), re.DOTALL)
TOLD = re.findall(r"^(tables/log/signups\.yaml:.*)$", PAGE.read_text(), re.MULTILINE)
READ = [
    "{name: time, type: timestamp}", "{name: kind, type: string}", "{name: user_id, type: bigint}",
    "{name: amount, type: double}", "{name: country_code, type: string}", "{name: agent, type: string}",
    "{name: plan_id, type: string}",
]  # fmt: skip


def test_every_example_is_taken() -> None:
    whole, values, conditions, contract, collected, protobuf, streams, *changed, retention, linked, renamed = EXAMPLES
    head = 'schema: log\ntable: signups\nstreams:\n  - {name: s, url: "s3://staging/s/"}\ncolumns:\n'
    read = "".join(f"  - {column}\n" for column in READ)
    country = "  - {name: country, type: string}\n"
    several = (
        "schema: log\ntable: signups\n"
        + streams
        + f"columns:\n{read}"
        + "".join(f"  - {{name: {name}, type: string}}\n" for name in ("contact", "email"))
    )
    for text in (
        whole, *(head.replace("columns:\n", columns) for columns in changed), head + read + values,
        head + read + country + conditions, whole + contract, head + read + collected, whole + retention, several,
        whole + linked,
        whole.replace("schema: log\ntable: signups\n", renamed),
    ):  # fmt: skip
        assert problems_of_table(parse_table_file(text, "t.yaml")) == []
    text = f"schema: log\ntable: pages\nstreams:\n{protobuf}columns:\n  - {READ[0]}\n"
    pages = parse_table_file(text, "t.yaml", lambda _name: descriptor_set("page.proto"))
    assert problems_of_streams(pages) == []


def test_the_cases_of_the_page_are_those_of_its_table(tmp_path: Path) -> None:
    (cases,) = CASES
    path = tmp_path / "signups.yaml"
    path.write_text(EXAMPLES[0])
    cases_of(path).write_text(cases)
    report = run_cases(path)
    assert (report.cases, report.failures) == (5, ())


def test_the_mistake_of_the_page_is_told_in_its_words() -> None:
    whole = EXAMPLES[0]
    assert whole.count("trim(email)") == 1
    mistaken = whole.replace("trim(email)", "trim(emial)")
    assert problems_of_table(parse_table_file(mistaken, "tables/log/signups.yaml")) == TOLD[:1]


def test_the_join_table_that_is_documented_can_be_applied() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.with_name("joins.md").read_text(), re.DOTALL)
    records, changes = tables_of(parse_table_file(text, "t.yaml"))
    assert (str(records.name), str(changes.name)) == ("log.request", "log.request_changes")
    assert problems_of_table(changes) == []
