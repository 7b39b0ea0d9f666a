"""`prism dbt sources` and `prism table ddl`, from table files alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_assets_tests.builders import a_table
from prism_assets_tests.command.prism import Prism

PLAIN = "log.plain"
DBT = ("dbt-core>=1.10.20,<1.11", "dbt-duckdb>=1.9,<1.11", "duckdb==1.5.5")


@pytest.fixture
def tables(prism: Prism) -> Prism:
    """Three tables; one of them is in every catalog. Neither PostgreSQL nor Glue is asked."""
    folder = prism.world.settings.tables_dir
    folder.mkdir()
    shown = a_table(iceberg="true").replace("a test table", '"All {{ events }}, {{{% x"')
    (folder / "events.yaml").write_text(f"{shown}symlink: true\nfreshness: {{warn: 90m, fail: 2d}}\n")
    (folder / "plain.yaml").write_text(a_table(PLAIN))
    (folder / "old.yaml").write_text(f"{a_table('log.old')}symlink: true\nretired: true\n")
    prism.set(database_url=None, bucket=None, glue_database_prefix="x_", glue_database_suffix="_lake")
    return prism


def sources(prism: Prism, engine: str) -> dict[str, Any]:
    found = yaml.safe_load(prism.ok("dbt", "sources", "--for", engine).out)
    (source,) = found["sources"]
    assert found["version"] == 2
    return dict(source)


def test_each_engine_gets_the_tables_that_it_sees(tables: Prism) -> None:
    athena, redshift, iceberg = (sources(tables, name) for name in ("athena", "redshift", "iceberg"))
    assert (athena["database"], athena["schema"]) == ("awsdatacatalog", "x_log_lake_symlink")
    assert ("database" in redshift, redshift["schema"]) == (False, "log")
    assert iceberg["schema"] == "x_log_iceberg"
    names = [[table["name"] for table in source["tables"]] for source in (athena, redshift, iceberg)]
    assert names == [["events"], ["events", "plain"], ["events"]]


def test_freshness_columns_and_texts_come_from_the_table_file(tables: Prism) -> None:
    (events,) = sources(tables, "athena")["tables"]
    assert events["config"]["loaded_at_field"] == '"time"', "a reserved word of Redshift may name the column"
    assert events["config"]["freshness"] == {
        "warn_after": {"count": 90, "period": "minute"},
        "error_after": {"count": 2, "period": "day"},
        "filter": "dt >= current_date - interval '4' day",
    }
    assert events["description"] == "All { { events }}, { { { % x"
    columns = {column["name"]: column["data_type"] for column in events["columns"]}
    assert (columns["id"], columns["dt"]) == ("bigint", "date")
    (_, plain) = sources(tables, "redshift")["tables"]
    assert "freshness" not in plain.get("config", {})


def test_redshift_gets_external_schemas_and_athena_views(tables: Prism) -> None:
    role = "arn:aws:iam::123456789012:role/spectrum"
    assert tables.ok("table", "ddl", "--for", "redshift", "--role", role).out == (
        'CREATE EXTERNAL SCHEMA IF NOT EXISTS "log"\n'
        "FROM DATA CATALOG DATABASE 'x_log_lake' REGION 'us-east-1'\n"
        f"IAM_ROLE '{role}';\n"
    )
    assert "IAM_ROLE default;" in tables.ok("table", "ddl", "--for", "redshift").out
    views = tables.ok("table", "ddl", "--for", "athena").out
    assert views.startswith("CREATE DATABASE IF NOT EXISTS `log_views`;\n\n")
    assert 'CREATE OR REPLACE VIEW "log_views"."events" AS\nSELECT "time", "id", "dt"\n' in views
    assert 'FROM "x_log_lake_symlink"."events";' in views
    assert tables.ok("table", "ddl", "--for", "athena", "--json").out.startswith("[")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("dbt", "sources", "--for", "athena", "--table", PLAIN), "has no `symlink: true`"),
        (("dbt", "sources", "--for", "iceberg", "--table", PLAIN), "has no `iceberg: true`"),
        (("dbt", "sources", "--for", "redshift", "--table", "log.evens"), "did you mean log.events?"),
        (("dbt", "sources", "--for", "redshift", "--table", "log.old"), "log.old is retired"),
        (("table", "ddl", "--for", "iceberg"), "Iceberg tables need no statements"),
        (("table", "ddl", "--for", "athena", "--role", "x"), "--role is for Redshift"),
        (("table", "ddl", "--for", "athena", "--into", "x_log_lake"), "is a database of prism itself"),
        (("table", "ddl", "--for", "athena", "--into", "x_app_lake_symlink"), "is a database of prism itself"),
        (("table", "ddl", "--for", "athena", "--into", "all"), "app.events and log.events would be one view in all"),
    ],
)
def test_a_wrong_use_is_one_sentence(tables: Prism, words: tuple[str, ...], sentence: str) -> None:
    (tables.world.settings.tables_dir / "app.yaml").write_text(f"{a_table('app.events')}symlink: true\n")
    done = tables(*words)
    assert (done.status, done.out) == (2, "")
    assert sentence in done.err


def test_a_wrong_table_file_is_told(tables: Prism) -> None:
    (tables.world.settings.tables_dir / "wrong.yaml").write_text("table: log.wrong\nbogus: 1\n")
    done = tables("dbt", "sources", "--for", "redshift")
    assert (done.status, done.out) == (2, "")
    assert "bogus" in done.err


def test_dbt_reads_the_sources_and_their_freshness(tables: Prism, long: bool, tmp_path: Path) -> None:
    """With dbt itself, in an environment of its own, over DuckDB: its filter is the one of Iceberg's engines."""
    if not long:
        pytest.skip("with --long: installs dbt")
    home = Path(__file__).parents[2] / ".prism" / "dbt"
    if not (home / "bin" / "dbt").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "-q", *DBT], check=True)
    project = tmp_path / "project"
    (project / "models").mkdir(parents=True)
    properties = tables.ok("dbt", "sources", "--for", "iceberg").out
    (project / "models" / "prism.yml").write_text(properties)
    (project / "dbt_project.yml").write_text("name: reads\nversion: 1.0.0\nprofile: reads\n")
    (project / "profiles.yml").write_text(
        f"reads:\n  target: dev\n  outputs:\n    dev: {{type: duckdb, path: '{project}/lake.duckdb'}}\n"
    )
    create = (
        "import duckdb; c = duckdb.connect('lake.duckdb'); c.execute('CREATE SCHEMA x_log_iceberg'); "
        "c.execute('CREATE TABLE x_log_iceberg.events AS "
        "SELECT now()::timestamp - INTERVAL 3 HOUR AS time, current_date AS dt')"
    )
    subprocess.run([str(home / "bin" / "python"), "-c", create], check=True, cwd=project)
    done = subprocess.run(
        [str(home / "bin" / "dbt"), "--no-send-anonymous-usage-stats", "source", "freshness", "--profiles-dir", "."],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "WARN freshness of log.events" in done.stdout, done.stdout + done.stderr
    assert "DeprecationsSummary" not in done.stdout
    assert "MovedToConfig" not in done.stdout
