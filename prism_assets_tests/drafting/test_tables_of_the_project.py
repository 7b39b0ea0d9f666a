"""The example tables have cases, and pass them."""

from __future__ import annotations

from pathlib import Path

import pytest

from prism_assets.drafting.cases import cases_of, run_cases

TABLES = sorted((Path(__file__).parents[2] / "tables").rglob("*.yaml"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_each_table_of_the_project_does_what_its_cases_say(path: Path) -> None:
    assert cases_of(path).is_file()
    report = run_cases(path)
    assert report.failures == ()
    assert report.cases
