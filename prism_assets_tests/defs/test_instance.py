"""dagster.yaml, and the commands that check the definitions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.commands import Command, Ended, run_commands
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


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """Three validations on an empty instance: of a folder with one table, by `dagster` and `dg`, and of a wrong one."""
    root = tmp_path_factory.mktemp("validated")
    (home := root / "home").mkdir()
    (wrong := root / "wrong").mkdir()
    (wrong / "bad.yaml").write_text("a: [1")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRISM_")}
    environment = {
        **kept,
        "DAGSTER_HOME": str(home),
        "PRISM_TABLES_DIR": str(a_folder(root, a_table())),
        "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path]),
    }
    validate = ["dagster", "definitions", "validate"]
    strict = {"PRISM_TABLES_DIR": str(wrong), "PRISM_STRICT_TABLES": "1"}
    commands = [Command(validate), Command(["dg", "check", "defs"]), Command(validate, strict)]
    return run_commands(PROJECT, environment, commands)


def test_dagster_finds_the_definitions_valid(validated: list[Ended]) -> None:
    assert validated[0].status == 0, validated[0].said
    assert "All code locations passed validation" in validated[0].said


def test_dg_finds_the_definitions_valid(validated: list[Ended]) -> None:
    assert validated[1].status == 0, validated[1].said
    assert "All definitions loaded successfully" in validated[1].said


def test_a_validation_that_fails_shows_the_sentence_and_no_place_in_the_code(validated: list[Ended]) -> None:
    told = validated[2].said
    assert (validated[2].status, "bad.yaml:1: this is not YAML" in told) == (1, True), told
    assert "File " not in told
    assert "Traceback" not in told
