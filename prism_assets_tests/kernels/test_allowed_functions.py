"""The functions allowed in expressions have the documented properties, and their results stay the same."""

from __future__ import annotations

import json

import duckdb
import pytest

from prism_assets.kernels.expressions.allowed import BOUNDED, DUCKDB_MACROS, FUNCTIONS
from prism_assets_tests.kernels.golden.functions import FIXTURE, results, without_results

_LINES = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
WRITTEN_WITH = _LINES[0][0]

pytestmark = pytest.mark.skipif(
    duckdb.__version__.split(".")[0] < WRITTEN_WITH.split(".")[0], reason="Python 3.10 has the DuckDB before"
)


def test_each_allowed_function_is_consistent_in_duckdb() -> None:
    stabilities = dict(
        duckdb.connect()
        .execute(
            "SELECT function_name, bool_and(stability = 'CONSISTENT') FROM duckdb_functions() "
            "WHERE function_type = 'scalar' GROUP BY 1"
        )
        .fetchall()
    )
    assert [name for name in sorted((FUNCTIONS - DUCKDB_MACROS) | BOUNDED.keys()) if not stabilities.get(name)] == []


def test_each_allowed_function_gives_what_it_always_gave() -> None:
    found = results()
    assert without_results(found) == []
    golden = {call: texts for call, *texts in _LINES[1:]}
    changed = {call: (golden.get(call), texts) for call, texts in found.items() if golden.get(call) != texts}
    assert changed == {}
    assert golden.keys() == found.keys()
