"""The table of docs/tables.md is one that `prism table apply` takes."""

from __future__ import annotations

import re
from pathlib import Path

from prism_assets.domain.table_file import parse_table_file
from prism_assets.kernels.expressions.check import problems_of_table

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
READ = [
    "{name: time, type: timestamp}", "{name: kind, type: string}", "{name: user_id, type: bigint}",
    "{name: amount, type: double}", "{name: country_code, type: string}", "{name: agent, type: string}",
    "{name: plan_id, type: string}",
]  # fmt: skip


def test_every_example_is_taken() -> None:
    whole, values, conditions = EXAMPLES
    head = 'schema: log\ntable: signups\nstreams:\n  - {name: s, url: "s3://staging/s/"}\ncolumns:\n'
    read = "".join(f"  - {column}\n" for column in READ)
    country = "  - {name: country, type: string}\n"
    for text in (whole, head + read + values, head + read + country + conditions):
        assert problems_of_table(parse_table_file(text, "t.yaml")) == []
