"""run_failures: one message a tick, about every failed run once, and never a failed tick."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    SensorResult,
    build_sensor_context,
)

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.keys import FAILED_TABLES_TAG, MAINTENANCE, PARTITION_TAG, asset_key
from prism_assets.defs.resources import build_platform
from prism_assets.defs.sensors.build import build_sensors
from prism_assets.domain.errors import SettingsError
from prism_assets.settings import load_alert_settings
from prism_assets_tests.alerts.test_senders import Receiver, receiver
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.world import World

__all__ = ["receiver"]

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def _no_platform(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("PRISM_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def tick(instance: DagsterInstance, tmp_path_factory: pytest.TempPathFactory) -> Ticker:
    return Ticker(instance, tmp_path_factory)


class Ticker:
    """One tick after the other, each with the cursor of the one before; the first sees nothing of the past."""

    def __init__(self, instance: DagsterInstance, factory: pytest.TempPathFactory) -> None:
        location = a_location(factory.mktemp("files"), a_table())
        self._sensor = {item.name: item for item in build_sensors(location)}["run_failures"]
        self._instance = instance
        self.cursor: str | None = None
        assert self() == "no run failed since the last tick"

    def __call__(self) -> str:
        with build_sensor_context(instance=self._instance, cursor=self.cursor) as context:
            result = self._sensor(context)
        assert isinstance(result, SensorResult)
        assert not result.run_requests
        assert result.skip_reason is not None
        self.cursor = result.cursor
        return result.skip_reason.skip_message or ""


def a_failed_run(
    instance: DagsterInstance,
    *tables: str,
    sick: str = "",
    keys: tuple[AssetKey, ...] = (),
    why: str = "the process of this run is gone",
) -> DagsterRun:
    tags = {PARTITION_TAG: "2026-03-01", **({FAILED_TABLES_TAG: sick} if sick else {})}
    selection = frozenset(keys or (asset_key(table, "catalog") for table in tables))
    started = DagsterRun(job_name="a_job", status=DagsterRunStatus.STARTED, tags=tags, asset_selection=selection)
    instance.add_run(started)
    instance.report_run_failed(started, why)
    return started


def test_every_failed_run_is_told_once(
    instance: DagsterInstance, tick: Ticker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", receiver.target)
    monkeypatch.setenv("PRISM_DAGSTER_URL", "https://dagster.example/")
    failed = a_failed_run(instance, "log.events", "log.other", sick="log.other")
    assert tick() == "1 run failed; told by webhook"
    assert receiver.bodies[0]["text"] == (
        "prism: 1 run failed, for log.other\n"
        f"- catalog 2026-03-01, run {failed.run_id[:8]}, log.other: the process of this run is gone "
        f"https://dagster.example/runs/{failed.run_id}"
    )
    assert tick() == "no run failed since the last tick"
    a_failed_run(instance, "log.events", why="its launch took too long")
    assert tick() == "1 run failed; told by webhook"
    assert len(receiver.bodies) == 2


def test_many_failed_runs_are_one_message(
    instance: DagsterInstance, tick: Ticker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", receiver.target)
    monkeypatch.setattr("prism_assets.defs.sensors.run_failures._LIMIT", 20)
    for number in range(30):
        a_failed_run(instance, f"log.t{number:03}", why=f"broken {'by this' if number < 20 else 'by that'}")
    assert tick() == "20 runs failed; told by webhook"
    assert tick() == "10 runs failed; told by webhook"
    assert tick() == "no run failed since the last tick"
    assert [document["failed"] for document in receiver.bodies] == [20, 10]


def test_a_message_that_does_not_go_out_is_tried_three_times_and_then_left(
    instance: DagsterInstance, tick: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", "webhook:http://127.0.0.1:1/hush")
    a_failed_run(instance, "log.events")
    reasons = [tick() for _ in range(4)]
    assert [reason.endswith("the next tick tries again") for reason in reasons] == [True, True, False, False]
    assert reasons[2].endswith("given up, they are in the log of this tick")
    assert reasons[3] == "no run failed since the last tick"
    a_failed_run(instance, "log.events")
    reasons.append(tick())
    assert reasons[4].endswith("the next tick tries again"), "its cause was told to nobody yet"
    assert "hush" not in " ".join(reasons)


def test_a_cause_is_told_once_and_then_once_an_hour_with_the_number_of_runs(
    instance: DagsterInstance, tick: Ticker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", receiver.target)
    a_failed_run(instance, "log.events", why="3 tables: the server of log.events is away")
    assert tick() == "1 run failed; told by webhook"
    for table in ("log.events", "log.other", "log.third"):
        a_failed_run(instance, table, why=f"12 tables: the server of {table} is away")
        assert tick() == "1 run failed; their causes were told within the last hour"
    a_failed_run(instance, "log.events", why="another thing")
    assert tick() == "1 run failed; told by webhook"
    assert len(receiver.bodies) == 2

    monkeypatch.setattr("prism_assets.defs.sensors.failure_position.PAUSE", timedelta(0))
    assert tick() == "no run failed since the last tick; told by webhook"
    subject, reminder = receiver.bodies[2]["text"].splitlines()
    assert subject == "prism: 3 more runs failed"
    assert reminder.startswith("- catalog, 3 more runs since ")
    assert reminder.endswith("Z, as reported before: 3 tables: the server of log.events is away")
    assert (receiver.bodies[2]["failed"], receiver.bodies[2]["runs"]) == (3, [])
    assert tick() == "no run failed since the last tick"
    a_failed_run(instance, "log.events", why="3 tables: the server of log.events is away")
    assert tick() == "1 run failed; told by webhook", "after an hour of silence it is news again"


def test_the_cursor_stays_small_however_many_runs_fail_of_however_many_causes(
    instance: DagsterInstance, tick: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.failure_position._MOST_SEEN", 40)
    for number in range(120):
        a_failed_run(instance, "log.events", why=f"{'x' * number} broken {'y' * 300}")
    assert tick() == "120 runs failed; told by log"
    document = json.loads(tick.cursor or "")
    assert len(document["causes"]) == 50
    assert len(document["seen"]) == 40
    assert len(tick.cursor or "") < 30_000
    assert tick() == "no run failed since the last tick"


def test_secrets_do_not_stay_in_the_cursor(
    instance: DagsterInstance, tick: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    a_failed_run(instance, "log.events", why="refused hush-hush")
    assert tick() == "1 run failed; told by log"
    assert "refused" in (tick.cursor or "")
    assert "hush" not in (tick.cursor or "")


def test_many_failures_of_others_do_not_hide_ours(
    instance: DagsterInstance, tick: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.run_failures._LIMIT", 10)
    for _ in range(25):
        a_failed_run(instance, keys=(AssetKey(["theirs"]),))
    a_failed_run(instance, "log.events")
    assert [tick() for _ in range(4)] == [
        "no run failed since the last tick",
        "no run failed since the last tick",
        "1 run failed; told by log",
        "no run failed since the last tick",
    ]


def test_a_maintenance_that_failed_is_told(
    instance: DagsterInstance, tick: Ticker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", receiver.target)
    run = instance.add_run(DagsterRun(job_name=MAINTENANCE, status=DagsterRunStatus.STARTED))
    instance.report_run_failed(run, "no time is left")
    assert tick() == "1 run failed; told by webhook"
    assert receiver.bodies[0]["text"] == (
        f"prism: 1 run failed\n- daily maintenance, run {run.run_id[:8]}: no time is left"
    )


def test_runs_of_others_are_not_told(instance: DagsterInstance, tick: Ticker) -> None:
    a_failed_run(instance, keys=(AssetKey(["theirs"]),))
    assert tick() == "no run failed since the last tick"


def test_wrong_settings_send_alerts_to_the_log(
    instance: DagsterInstance, tick: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", "pigeon:hush")
    a_failed_run(instance, "log.events")
    assert tick() == "1 run failed; told by log"


def test_the_first_sentence_of_the_error_is_told(
    settled: World, instance: DagsterInstance, tick: Ticker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_ALERT", receiver.target)
    location = a_location(settled.root, a_table(), a_table("log.sick", bucket="nowhere"))
    job = Definitions(assets=build_assets(location), resources=build_platform()).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        asset_selection=[asset_key(table, "live") for table in ("log.events", "log.sick")],
        partition_key=_today(),
        instance=instance,
        raise_on_error=False,
    )
    assert not done.success
    assert tick() == "1 run failed; told by webhook"
    (told,) = receiver.bodies[0]["runs"]
    assert (told["work"], told["tables"], told["day"]) == ("live", ["log.sick"], _today())
    assert told["error"].startswith("1 table has a problem; all others are done: log.sick: stream sick")
    assert told["link"] is None


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


@pytest.mark.parametrize(
    "alert",
    ["", "mail", "log:x", "webhook", "webhook:ftp://hush", "webhook:https://", "sns:hush", "sns:arn:aws:sns:hush"],
)
def test_a_wrong_alert_is_told_without_its_value(alert: str) -> None:
    with pytest.raises(SettingsError, match="PRISM_ALERT: must be log, webhook:") as caught:
        load_alert_settings(alert=alert)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["dagster:3000", "https://me:hush@dagster", "https://"])
def test_a_wrong_link_is_told_without_its_value(url: str) -> None:
    with pytest.raises(SettingsError, match="PRISM_DAGSTER_URL: must look like") as caught:
        load_alert_settings(dagster_url=url)
    assert "hush" not in str(caught.value)
