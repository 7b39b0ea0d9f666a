"""deploy/dagster.yaml: the instance in production, whose logs of steps are in S3."""

# Dagster reads the annotations of ops, so this module does not postpone them.
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from dagster import DagsterInstance, OpExecutionContext, Shape, job, op
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config
from dagster_aws.ecs import EcsRunLauncher

PROJECT = Path(__file__).resolve().parents[2]
BUCKET = "compute-logs"
_OWN = {"compute_logs", "local_artifact_storage", "run_launcher"}


def _read(folder: Path) -> Any:
    return yaml.safe_load((folder / "dagster.yaml").read_text())


@op
def speak(context: OpExecutionContext) -> None:
    context.log.info("a word in the log")


@job
def speaking() -> None:
    speak()


def test_production_differs_from_development_where_it_must_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "USER", "PASSWORD", "DB"):
        monkeypatch.setenv(f"PRISM_DAGSTER_PG_{name}", "somewhere")
    monkeypatch.setenv("PRISM_DAGSTER_PG_PORT", "5432")
    monkeypatch.setenv("PRISM_COMPUTE_LOGS_BUCKET", BUCKET)
    dagster_instance_config(str(PROJECT / "deploy"), "dagster.yaml")  # Dagster's validation
    ours, developers = _read(PROJECT / "deploy"), _read(PROJECT)
    assert {name for name in {*ours, *developers} if ours.get(name) != developers.get(name)} == _OWN


def test_the_launcher_of_the_page_fits_its_schema() -> None:
    snippets = re.findall(r"^```yml\n(.*?)^```", (PROJECT / "docs" / "dagster-aws.md").read_text(), re.DOTALL | re.M)
    launchers = [yaml.safe_load(text)["run_launcher"] for text in snippets]
    (launcher,) = [item for item in launchers if item["class"] == "EcsRunLauncher"]
    schema: Any = Shape(EcsRunLauncher.config_type())  # type: ignore[no-untyped-call]
    checked = validate_config(schema, launcher["config"])
    assert checked.success, checked.errors


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # botocore's, of Python's clock
def test_logs_of_steps_land_in_s3_and_are_read_from_there(
    services: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", services["MOTO_ENDPOINT"])
    monkeypatch.setenv("PRISM_COMPUTE_LOGS_BUCKET", BUCKET)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    s3: Any = boto3.session.Session().client("s3")
    s3.create_bucket(Bucket=BUCKET)
    logs = _read(PROJECT / "deploy")["compute_logs"]
    with DagsterInstance.local_temp(str(tmp_path / "one"), overrides={"compute_logs": logs}) as instance:
        result = speaking.execute_in_process(instance=instance)
        captured = [event for event in result.all_events if event.event_type_value == "LOGS_CAPTURED"]
        (key,) = [event.logs_captured_data.file_key for event in captured]
    stored = [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())]
    # Nothing was printed, and empty files are not stored.
    assert stored == [f"dagster/storage/{result.run_id}/compute_logs/{key}.err"]
    # Another machine, without the files of the run.
    with DagsterInstance.local_temp(str(tmp_path / "two"), overrides={"compute_logs": logs}) as instance:
        read = instance.compute_log_manager.get_log_data([result.run_id, "compute_logs", key])
        assert b"a word in the log" in (read.stderr or b"")
