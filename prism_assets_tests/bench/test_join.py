"""The benchmark of folds: times count only for systems with equal rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from bench.join import main, race
from bench.join_case import ALL_COLUMNS, Case, make_case
from bench.join_peers import DuckDBArgMax, DuckDBJoins


def test_folds_give_the_rows_that_queries_give(tmp_path: Path) -> None:
    arguments = ["--rows", "300", "--changes", "200", "--rounds", "1", "--per-hour", "20", "--results", str(tmp_path)]
    main([*arguments, "--processes", "1", "--systems", "duckdb-joins"])
    report = (tmp_path / "join.md").read_text()
    assert "all systems gave equal rows" in report
    assert "| DuckDB, joins | " in report
    assert "| 0.1 | 60 min | " in report


class Forgetful(DuckDBJoins):
    """Loses one value."""

    def work(self) -> None:
        super().work()
        with duckdb.connect() as connection:
            target = f"{self.target}/0.parquet"
            kept = (
                f"SELECT * REPLACE (CASE WHEN row_number() OVER () = 1 THEN -1 ELSE item END AS item) FROM '{target}'"
            )
            connection.execute(f"CREATE TABLE other AS {kept}")
            connection.execute(f"COPY other TO '{target}' (FORMAT parquet)")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path / "case", 300, 200)


def test_systems_whose_rows_differ_are_not_timed(case: Case) -> None:
    with pytest.raises(ValueError, match="gave"):
        race({"prism": DuckDBArgMax(case), "duckdb-joins": Forgetful(case)}, 1, Console(quiet=True))


def test_a_case_has_new_records_and_changes_that_lose(case: Case) -> None:
    with duckdb.connect() as connection:
        joined = f"FROM '{case.changes_of('back')}' AS new LEFT JOIN '{case.base}' AS old USING (request_id)"
        found = connection.execute(
            f"SELECT count(*) FILTER (old.time IS NULL), count(*) FILTER (new.back_seq < old.back_seq), "
            f"count(*) FILTER (new.back_seq > old.back_seq) {joined}"
        ).fetchall()
    born, lost, won = found[0]
    assert min(born, lost, won) > 0
    assert len(ALL_COLUMNS) == 19
