"""dagster.yaml, and the commands that check the definitions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_folder

PROJECT = Path(__file__).resolve().parents[2]
KINDS = {"skipped", "started", "success", "failure"}


@pytest.fixture(scope="module")
def settings() -> Any:
    """Returns the content of dagster.yaml after Dagster's validation."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOST", "USER", "PASSWORD", "DB"):
            patch.setenv(f"PRISM_DAGSTER_PG_{name}", "somewhere")
        patch.setenv("PRISM_DAGSTER_PG_PORT", "5432")
        dagster_instance_config(str(PROJECT), "dagster.yaml")
    return yaml.safe_load((PROJECT / "dagster.yaml").read_text())


def test_nothing_is_sent_to_anybody(settings: Any) -> None:
    assert settings["telemetry"] == {"enabled": False}


def test_ticks_of_every_kind_end_some_day(settings: Any) -> None:
    for instigator in ("sensor", "schedule", "auto_materialize"):
        days = settings["retention"][instigator]["purge_after_days"]
        assert set(days) == KINDS
        assert all(count > 0 for count in days.values())


def test_only_runs_whose_process_died_are_started_again_as_a_whole(settings: Any) -> None:
    assert settings["run_retries"] == {"enabled": True, "max_retries": 3, "retry_on_asset_or_op_failure": False}


def test_slots_of_pools_become_free_after_the_end_of_a_run(settings: Any) -> None:
    assert settings["concurrency"]["pools"] == {"default_limit": 2, "granularity": "run"}
    assert settings["run_monitoring"]["free_slots_after_run_end_seconds"] == 60


def checked(tmp_path: Path, *command: str) -> str:
    """Runs a command on a folder of one table, with an empty instance and no setting. Returns its output."""
    folder = a_folder(tmp_path, a_table())
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRISM_")}
    more = {
        "DAGSTER_HOME": str(home),
        "PRISM_TABLES_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=PROJECT, env={**kept, **more}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_dagster_finds_the_definitions_valid(tmp_path: Path) -> None:
    assert "All code locations passed validation" in checked(tmp_path, "-m", "dagster", "definitions", "validate")


def test_dg_finds_the_definitions_valid(tmp_path: Path) -> None:
    pytest.importorskip("dagster_dg_cli", reason="dg is not installed: pip install -e '.[dev]'")
    command = "from dagster_dg_cli.cli import main; main()"
    assert "All definitions loaded successfully" in checked(tmp_path, "-c", command, "check", "defs")
