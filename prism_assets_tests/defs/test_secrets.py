"""Secrets reach neither Dagster's storage nor any log, whatever goes wrong."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from urllib.parse import urlsplit

import pytest
from dagster import DagsterRunStatus

from prism_assets.defs import failures
from prism_assets.known_secrets import secret_values
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.stored import StoredDagster, stored_dagster
from prism_assets_tests.defs.tables import a_folder
from prism_assets_tests.world import World

# Dagster calls code deprecated by itself: for a resource within another one, and when a schedule is loaded.
pytestmark = [
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Property .ScheduleDefinition.environment_vars. is:DeprecationWarning"),
]

PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "canary-aws-secret",
    "AWS_SESSION_TOKEN": "canary-aws-session",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN": "canary-aws-container",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN": "canary-spark-token",
    "PRISM_DAGSTER_PG_PASSWORD": "canary-dagster-database",
    "PRISM_ALERT": "webhook:http://127.0.0.1:1/canary-webhook",
}


@pytest.fixture
def planted(settled: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world with an object to convert, and a distinctive value for every secret the world does not use."""
    folder = a_folder(settled.root, a_table(iceberg="true"))
    for name, value in {**PLANTED, "PRISM_TABLES_DIR": str(folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(failures, "MAX_RETRIES", 0)  # no wait for an expected failure
    settled.drop(some_rows(5, datetime.now(timezone.utc)))
    return settled


@pytest.fixture
def dagster(planted: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredDagster]:
    with stored_dagster(tmp_path_factory.mktemp("dagster")) as made:
        yield made


class Watch:
    """All secrets, and all output."""

    def __init__(self, world: World, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)  # below this level botocore logs the headers of its requests
        url = world.settings.database_url.get_secret_value()
        self._secrets = {value.rpartition("/")[2] for value in PLANTED.values()} | {url, urlsplit(url).password or ""}
        self._capfd = capfd
        self._caplog = caplog
        self._said = ""

    def plant(self, secret: str) -> str:
        """One more secret."""
        self._secrets.add(secret)
        return secret

    def said(self) -> str:
        """Returns everything on both outputs of this process and in all its logs."""
        self._said += "\n".join(self._capfd.readouterr())
        return f"{self._said}\n{self._caplog.text}"

    def found_in(self, text: str) -> set[str]:
        assert all(len(secret) > 10 for secret in self._secrets)
        return {secret for secret in self._secrets | {"canary"} if secret in text}


@pytest.fixture
def watch(planted: World, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Watch:
    return Watch(planted, capfd, caplog)


def statuses(dagster: StoredDagster) -> set[DagsterRunStatus]:
    return {run.status for run in dagster.instance.get_runs()}


def test_a_good_run_stores_no_secret_where_one_would_be_found(
    planted: World, dagster: StoredDagster, watch: Watch
) -> None:
    dagster.tick()
    dagster.forget_ticks()
    dagster.tick()
    assert statuses(dagster) == {DagsterRunStatus.SUCCESS}
    stored = dagster.text()
    assert "rows added" in stored, "events are there"
    assert "load_catalog(" in stored, "and what tells where the database is"
    assert watch.found_in(stored) == set()
    assert watch.found_in(watch.said()) == set()
    dagster.instance.add_dynamic_partitions("canary-definition", ["a"])
    assert watch.found_in(dagster.text()) == {"canary"}
    print("canary-aws-secret")
    assert watch.found_in(watch.said()) == {"canary", "canary-aws-secret"}


FAILURES: Mapping[str, tuple[str, str, str]] = {
    "a wrong bucket": ("PRISM_BUCKET", "nowhere", "bucket nowhere does not exist"),
    "a wrong password": ("PRISM_DATABASE_URL", "{wrong_password}", "password authentication failed"),
    "a server that is away": ("PRISM_DATABASE_URL", "{away}", "does not answer"),
    "a wrong address": ("PRISM_DATABASE_URL", "mysql://me:canary-of-address@db.example/prism", "PRISM_DATABASE_URL"),
    "an engine that is away": ("PRISM_SPARK_REMOTE", "sc://localhost:1/;token=canary-of-address", "Spark does not"),
    "a wrong engine": ("PRISM_SPARK_REMOTE", "sc://localhost:no/;token=canary-of-address", "Spark"),
}


def test_failures_store_no_secret(
    planted: World, dagster: StoredDagster, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, the ticks fail. Where the engine is away, a run fails, and the tick that sends the alert."""
    url = planted.settings.database_url.get_secret_value()
    password = urlsplit(url).password or ""
    wrong = {
        "{wrong_password}": url.replace(password, watch.plant("canary-wrong-password")),
        "{away}": "postgresql://me:canary-of-address@127.0.0.1:1/prism",
    }
    for case, (name, value, sentence) in FAILURES.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, wrong.get(value, value))
            dagster.forget_ticks()
            dagster.tick()
            if case == "an engine that is away":
                assert DagsterRunStatus.FAILURE in statuses(dagster)
                dagster.forget_ticks()
                dagster.tick()
                assert re.search(r"\d runs? failed", dagster.text()), "of a slow machine more than one"
        stored = dagster.text()
        assert sentence in stored, case
        assert watch.found_in(stored) == set(), case
        assert watch.found_in(watch.said()) == set(), case
    dagster.forget_ticks()
    dagster.tick()
    dagster.break_cursor("run_failures")
    dagster.tick()
    assert any("JSONDecodeError" in error for error in dagster.failed_ticks())
    assert watch.found_in(dagster.text()) == set()
    assert watch.found_in(watch.said()) == set()


def test_every_planted_secret_is_one_that_messages_are_cleared_of(planted: World) -> None:
    known = " ".join(secret_values())
    assert [name for name, value in PLANTED.items() if value.partition(":")[2] not in known] == []
    assert [value for value in PLANTED.values() if value.rpartition("/")[2] not in known] == []
