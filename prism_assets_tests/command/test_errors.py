"""Errors appear in plain words on standard error, with the exit status of their kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import sqlalchemy
import typer.main

from prism_assets.cli import app
from prism_assets.metadata.database import Database
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Done, Prism, environment
from prism_assets_tests.command.test_commands import every_command
from prism_assets_tests.flow.test_life_of_a_partition import _everything
from prism_assets_tests.notifications import QueueOfTest
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
NOT_OURS = "check that it runs, PRISM_DATABASE_URL and the network, then repeat"
COMMANDS = [
    ("table", "apply"),
    ("table", "list"),
    ("table", "show", "log.events"),
    ("table", "drop", "log.events"),
    ("discover",),
    ("stream",),
    ("fold",),
    ("fold", "--dry-run"),
    ("join", "explain", "log.events", "--key=1"),
    ("join", "advise", "log.events"),
    ("merge",),
    ("merge", "--dry-run"),
    ("catalog",),
    ("catalog", "--dry-run"),
    ("gc",),
    ("gc", "--dry-run"),
    ("iceberg", "plan"),
    ("iceberg", "publish"),
    ("iceberg", "status"),
    ("iceberg", "history", "log.events"),
    ("iceberg", "adopt", "log.events"),
    ("run",),
    ("status",),
    ("quarantine", "list"),
    ("quarantine", "show", "1"),
]


def fails(done: Done, status: int, *words: str) -> None:
    """Checks the status, every word, an empty standard output, and no trace of the code."""
    assert done.status == status, done
    assert done.err.startswith("prism: ")
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def in_one_line(done: Done) -> None:
    assert len(done.err.splitlines()) == 1, done.err


@pytest.fixture
def table(prism: Prism) -> Prism:
    """With the table log.events."""
    prism.world.apply(a_table())
    return prism


def test_no_settings_at_all(prism: Prism) -> None:
    prism.set(database_url=None, bucket=None)
    done = prism("status")
    fails(done, 2, "PRISM_DATABASE_URL: is not set", "PRISM_BUCKET: is not set", "`prism local up`")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lease_seconds": "0"}, "PRISM_LEASE_SECONDS: "),
        ({"max_attempts": "many"}, "PRISM_MAX_ATTEMPTS: "),
        ({"prefix": "no-slash"}, "PRISM_PREFIX: must be empty or look like folder/"),
        ({"spark_remote": "mesos://x"}, "PRISM_SPARK_REMOTE: must be sc://host:port"),
        ({"sqs_queue_urls": "events"}, "PRISM_SQS_QUEUE_URLS: must look like https://sqs.REGION.amazonaws.com/"),
        ({"sqs_queue_urls": "https://u:canary@h/1/q"}, "PRISM_SQS_QUEUE_URLS: must look like"),
        ({"sqs_wait_seconds": "21"}, "PRISM_SQS_WAIT_SECONDS: "),
        ({"backlog_objects": "0"}, "PRISM_BACKLOG_OBJECTS: "),
        ({"database_url": "mysql://u:canary@h/d"}, "PRISM_DATABASE_URL: must look like postgresql+psycopg://"),
        ({"database_url": "postgresql://u:canary@h:port/d"}, "PRISM_DATABASE_URL: must look like"),
        ({"database_url": "postgresql://"}, "PRISM_DATABASE_URL: must look like"),
        ({"database_url": "nonsense"}, "PRISM_DATABASE_URL: must look like"),
    ],
)
def test_a_setting_that_is_malformed(prism: Prism, settings: dict[str, str], words: str) -> None:
    prism.set(**settings)
    done = prism("status")
    fails(done, 2, words)
    assert "canary" not in done.err


def test_a_settings_file_that_is_not_toml(prism: Prism) -> None:
    (prism.world.root / "prism.toml").write_text("bucket = \n")
    fails(prism("status"), 2, "prism.toml")


def test_a_key_of_prism_toml_that_means_nothing_is_named_with_the_one_that_is_meant(prism: Prism) -> None:
    (prism.world.root / "prism.toml").write_text('lease_second = 5\nfirst_day = "2026-03-01"\n')
    fails(prism("status"), 2, "lease_second: there is no such setting; did you mean lease_seconds?")


def test_a_postgresql_that_is_stopped(prism: Prism) -> None:
    prism.set(database_url="postgresql://prism:canary@127.0.0.1:1/prism", tables_dir=".")
    for words in COMMANDS:
        done = prism(*words)
        fails(done, 1, f"PostgreSQL at 127.0.0.1:1 does not answer (Connection refused): {NOT_OURS}\n")
        in_one_line(done)
        assert "canary" not in done.err


def test_a_wrong_password(prism: Prism) -> None:
    url = sqlalchemy.make_url(environment(prism.world)["PRISM_DATABASE_URL"])
    prism.set(database_url=url.set(password="canary").render_as_string(hide_password=False))
    done = prism("status")
    said = f'password authentication failed for user "{url.username}"'
    fails(done, 1, f"refuses user {url.username}: {said}; check user and password in PRISM_DATABASE_URL")
    in_one_line(done)
    assert "canary" not in done.err


def test_a_database_that_does_not_exist(prism: Prism) -> None:
    url = sqlalchemy.make_url(environment(prism.world)["PRISM_DATABASE_URL"])
    prism.set(database_url=url.set(database="nothing").render_as_string(hide_password=False))
    done = prism("status")
    fails(done, 1, 'database "nothing" does not exist; create it, or correct the name in PRISM_DATABASE_URL')
    in_one_line(done)


@pytest.fixture
def bare_database(postgres: PostgresServer) -> Iterator[str]:
    """A database without any table."""
    url = postgres.create_database()
    database = Database(url)
    with database.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    database.dispose()
    yield url
    postgres.drop_database(url)


def test_every_command_before_the_first_apply(prism: Prism, bare_database: str) -> None:
    prism.set(database_url=bare_database)
    for words in COMMANDS[1:]:
        done = prism(*words)
        fails(done, 1, "the database has no prism tables of this version yet: run `prism table apply` first")
        in_one_line(done)


def test_commands_on_the_tables_of_a_later_release(table: Prism) -> None:
    table.world.drop(some_rows(3, utc(NOON)))
    with table.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'")
    for words in (("table", "apply"), ("table", "apply", "--dry-run"), ("stream",), ("run",), ("gc",), ("doctor",)):
        done = table(*words)
        fails(done, 1, "have version 999, which this code does not know", "install the release that ran the last")
        in_one_line(done)
    with table.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    table.ok("run", "--now", NOON)
    assert len(table.world.ids()) == 3


def test_commands_on_the_tables_of_the_next_release(table: Prism) -> None:
    """While an upgrade rolls over the machines, those of the former release go on."""
    table.world.drop(some_rows(3, utc(NOON)))
    with table.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
    table.ok("table", "apply")
    table.ok("run", "--now", NOON)
    assert len(table.world.ids()) == 3
    assert "install the new release here, too" in table.ok("doctor").out


def test_a_staging_bucket_that_does_not_exist(prism: Prism) -> None:
    prism.world.apply(a_table(bucket="nowhere"))
    done = prism("discover")
    assert done.status == 1
    assert "bucket nowhere does not exist" in done.err
    in_one_line(done)


def test_a_queue_that_does_not_exist(table: Prism, queue: QueueOfTest) -> None:
    table.set(sqs_queue_urls=f"{queue.url}-missing", sqs_endpoint=queue.endpoint)
    table.world.drop(some_rows(1, utc(NOON)))
    done = table("discover")
    assert done.status == 1
    assert "-missing does not exist: create it or correct PRISM_SQS_QUEUE_URLS" in done.err
    assert "1 new of 1 object in 1 stream listed" in done.out
    in_one_line(done)


def test_a_lake_bucket_that_does_not_exist(table: Prism) -> None:
    table.world.drop(some_rows(1, utc(NOON)))
    table.world.discover(NOON)
    shutil.rmtree(table.world.root / "buckets" / "lake")
    done = table("stream", "--now", NOON)
    assert done.status == 1
    assert "bucket lake does not exist" in done.err
    in_one_line(done)


def test_settings_that_name_another_lake(table: Prism) -> None:
    table.set(bucket="nowhere")
    done = table("stream", "--now", NOON)
    assert done.status == 1
    assert "belongs to the lake s3://lake/, and the settings name s3://nowhere/: correct PRISM_BUCKET" in done.err
    in_one_line(done)


def test_a_wrong_s3_endpoint(table: Prism) -> None:
    table.set(local_root=None, s3_endpoint="http://127.0.0.1:1")
    done = table("discover")
    assert done.status == 1
    assert ": the object store at http://127.0.0.1:1 does not answer: check that it runs, PRISM_S3_ENDPOINT" in done.err
    in_one_line(done)


def test_a_wrong_glue_endpoint(table: Prism) -> None:
    table.set(glue_endpoint="http://127.0.0.1:1")
    for words in (("files", "log.events"), ("query", "SELECT * FROM log.events")):
        done = table(*words)
        fails(done, 1, "Glue at http://127.0.0.1:1 does not answer (", "): check that it runs, PRISM_GLUE_ENDPOINT")
        in_one_line(done)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "events.yaml:1: this is not YAML"),
        ("", "events.yaml:1: the file must hold one mapping"),
        (a_table(columns=["{name: hue, type: color}"]), "events.yaml:11: columns[2].type: color is not a column type"),
        (a_table().replace("schema: log", "schema: Log"), "events.yaml:1: schema: must begin with a-z"),
    ],
)
def test_a_malformed_table_file(prism: Prism, text: str, words: str) -> None:
    prism.world.settings.tables_dir.mkdir()
    (prism.world.settings.tables_dir / "events.yaml").write_text(text)
    for more in ((), ("--dry-run",), ("--json",)):
        done = prism("table", "apply", *more)
        fails(done, 2, words)
        in_one_line(done)


def test_a_folder_of_table_files_that_does_not_exist(prism: Prism) -> None:
    fails(prism("table", "apply", "nowhere"), 2, "nowhere is not a folder")


def test_an_unknown_table(table: Prism) -> None:
    done = table("table", "show", "log.nothing")
    fails(done, 2, "there is no table log.nothing (there are: log.events)")
    for words in (("discover",), ("stream",), ("merge",), ("merge", "--dry-run"), ("catalog",), ("run",), ("status",)):
        assert table(*words, "--table", "log.nothing") == done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("files", "log.nothing"), "the catalog has no table log.nothing"),
        (("files", "events"), "events is not the name of a table: write schema.table"),
        (("query", "SELECT * FROM log.nothing"), "the catalog has no table log.nothing"),
        (("query", "rubbish"), "this is not a query"),
        (("query", "SELECT * FROM events"), "events is not a table"),
        (("quarantine", "show", "999"), "no line of staging object 999 is in quarantine"),
    ],
)
def test_a_wrong_argument(table: Prism, words: tuple[str, ...], message: str) -> None:
    done = table(*words)
    fails(done, 2, message)
    in_one_line(done)


def test_a_clock_that_is_no_time(table: Prism) -> None:
    for command in ("discover", "stream", "merge", "catalog", "run", "status"):
        for now in ("yesterday", "2026-13-01T00:00", ""):
            done = table(command, "--now", now)
            fails(done, 2, f"--now {now} is not a time: write it like 2026-11-21T00:10:00Z")
            in_one_line(done)


def test_a_date_that_is_none(table: Prism) -> None:
    for words in (("merge",), ("merge", "--dry-run"), ("status",), ("files", "log.events")):
        done = table(*words, "--date", "2026-02-30")
        fails(done, 2, "2026-02-30 is not a date: write it like 2026-11-20")
        in_one_line(done)


@pytest.mark.parametrize(
    "words", [("explode",), ("merge", "--explode"), ("table", "show"), ("quarantine", "show", "x")]
)
def test_a_command_line_that_makes_no_sense(prism: Prism, words: tuple[str, ...]) -> None:
    done = prism(*words)
    assert (done.status, done.out) == (2, "")
    assert "Traceback" not in done.err


def test_an_object_that_is_given_up_makes_a_run_fail(table: Prism) -> None:
    key = table.world.drop(some_rows(1, utc(NOON)))
    table.ok("discover", "--now", NOON)
    (table.world.root / "buckets" / "staging" / key).unlink()
    table.set(max_attempts="1")
    done = table("run", "--until-idle", "--now", NOON)
    assert done.status == 1
    assert f"s3://staging/{key}" in done.err


def test_the_command_itself_ends_with_its_status_and_a_sentence(world: World) -> None:
    """In a separate process, because only this shows the absence of a traceback."""
    wanted = {**os.environ, **environment(world), "PRISM_DATABASE_URL": "postgresql://u:canary@127.0.0.1:1/d"}
    command = [sys.executable, "-m", "prism_assets.cli", "status"]
    done = subprocess.run(command, env=wanted, cwd=world.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"prism: PostgreSQL at 127.0.0.1:1 does not answer (Connection refused): {NOT_OURS}\n"


WITH_CLOCK = [
    ("table", "apply"),
    ("discover",),
    ("stream",),
    ("fold",),
    ("fold", "--dry-run"),
    ("merge",),
    ("merge", "--dry-run"),
    ("catalog",),
    ("catalog", "--dry-run"),
    ("gc",),
    ("gc", "--dry-run"),
    ("iceberg", "plan"),
    ("iceberg", "publish"),
    ("iceberg", "optimize"),
    ("iceberg", "optimize", "--dry-run"),
    ("iceberg", "restore", "log.events"),
    ("iceberg", "register", "log.events"),
    ("table", "try", "events.yaml", "--sample=sample.jsonl"),
    ("rebuild", "log.events", "--date=2026-03-01"),
    ("history", "log.events"),
    ("erase", "log.events", "--where=id = 1"),
    ("table", "drop", "log.events"),
    ("table", "flip", "log.events"),
    ("quarantine", "replay", "log.events"),
    ("run",),
    ("run", "--until-idle"),
    ("status",),
]


_IN_VAIN = (
    ("table", "try"),
    ("table", "drop"),
    ("rebuild", "log.events"),
    ("iceberg", "restore"),
    ("iceberg", "register"),
)
NOTHING_THERE = [words for words in WITH_CLOCK if words[:2] in _IN_VAIN]
"""The first one needs a file, the second a retired table, the third rows, and the others an Iceberg table; no test of
the clock has them.
"""


def _names(words: tuple[str, ...]) -> tuple[str, ...]:
    """Without options and the name of a table."""
    return tuple(word for word in words if not word.startswith("--") and "." not in word)


def options(words: tuple[str, ...]) -> set[str]:
    command: Any = typer.main.get_command(app)
    for word in _names(words):
        command = command.commands[word]
    return {name for option in command.params for name in option.opts}


def test_every_command_that_takes_a_clock_is_known() -> None:
    found = {words for words in every_command(typer.main.get_command(app)) if "--now" in options(words)}
    assert found == {_names(words) for words in WITH_CLOCK}


@pytest.mark.parametrize("words", WITH_CLOCK)
@pytest.mark.parametrize("years", [-3, 3])
def test_a_clock_that_is_years_away_is_refused(table: Prism, words: tuple[str, ...], years: int) -> None:
    present = datetime.now(timezone.utc)
    now = f"{present.year + years}-07-01T12:00:00Z"
    before = _everything(table.world)
    done = table(*words, "--now", now, force=False)
    fails(done, 2, f"--now {now} is more than two years from the present, {present:%Y-%m-%d}", "add --force")
    in_one_line(done)
    assert _everything(table.world) == before
    forced = table(*words, "--now", now)
    assert "more than two years" not in forced.err
    assert forced.status == (2 if words in NOTHING_THERE else 0)


IMPOSSIBLE = ("0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "2200-12-31T10:00-14:00", "9999-12-31T23:59-14:00")


@pytest.mark.parametrize("words", WITH_CLOCK)
def test_a_clock_at_which_nobody_can_work_is_refused_also_if_it_is_meant(table: Prism, words: tuple[str, ...]) -> None:
    before = _everything(table.world)
    for now in IMPOSSIBLE[:1] + IMPOSSIBLE[-1:]:
        done = table(*words, "--now", now)
        fails(done, 2, f"--now {now} is not between the years 1970 and 2200 in UTC", "--force does not help")
        in_one_line(done)
    assert _everything(table.world) == before


@pytest.mark.parametrize("now", IMPOSSIBLE)
def test_a_clock_that_was_refused_has_left_nothing_that_keeps_objects_waiting(table: Prism, now: str) -> None:
    assert table("discover", "--now", now).status == 2
    table.world.drop(some_rows(3, utc(NOON)))
    assert table.ok("discover").out == "1 new of 1 object in 1 stream listed\n"


@pytest.mark.parametrize("now", ["1970-01-01T00:00:00Z", "2201-01-01T13:59+14:00", "2200-12-31T23:59:59Z"])
def test_objects_are_found_behind_a_clock_that_was_taken_however_far(table: Prism, now: str) -> None:
    assert table("discover", "--now", now).status == 0
    table.world.drop(some_rows(3, utc(NOON)))
    assert "1 new of 1 object" in table.ok("discover").out
    assert table("status", "--now", now).status == 0


@pytest.mark.parametrize("years", [-1, 1])
def test_a_clock_that_is_a_year_away_is_taken(table: Prism, years: int) -> None:
    now = f"{datetime.now(timezone.utc).year + years}-07-01T12:00:00Z"
    assert table("status", "--now", now, force=False).status == 0
