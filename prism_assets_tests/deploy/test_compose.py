"""The stack of the compose file, by its commands and environment and without containers: an object becomes a row."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
import sqlalchemy
from botocore.config import Config

from prism_assets.domain.errors import PrismError
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.settings import ReaderSettings
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.defs.server import free_port
from prism_assets_tests.deploy.services import HOME, Machine, image_environment, read_compose
from prism_assets_tests.postgres import PostgresServer
from prism_local.stack import LocalStack

STAGING = "prism-staging"
TABLE = a_table(bucket=STAGING)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """An S3 server, with its settings and keys."""
    stack = LocalStack(tmp_path_factory.mktemp("store") / ".prism")
    stack.up(services={"s3"})
    try:
        yield stack.environment()
    finally:
        stack.reset()


@contextmanager
def a_machine(folder: Path, services: Mapping[str, str], store: Mapping[str, str], url: str) -> Iterator[Machine]:
    """A machine with PostgreSQL, S3 and Glue for the services of the file, and one table."""
    prism, password = sqlalchemy.make_url(url), str(sqlalchemy.make_url(url).password)
    tables = folder / "their-tables"
    tables.mkdir()
    (tables / "events.yaml").write_text(TABLE)
    own = {
        "PRISM_GLUE_ENDPOINT": services["PRISM_GLUE_ENDPOINT"],
        "PRISM_GLUE_DATABASE_PREFIX": f"c{os.getpid()}_",
        "PRISM_COMPUTE_LOGS_BUCKET": store["PRISM_BUCKET"],
        "AWS_ENDPOINT_URL_S3": store["PRISM_S3_ENDPOINT"],
    }
    places = {
        "@postgres:5432/prism": f"@{prism.host}:{prism.port}/{prism.database}",
        "0.0.0.0": "127.0.0.1",
        "host: code,": "host: 127.0.0.1,",
        **{port: str(free_port()) for port in ("8090", "8091", "4000", "3000")},
    }
    found = read_compose({"PRISM_DB_PASSWORD": password, "PRISM_TABLES": str(tables)})
    dagster = {
        "PRISM_DAGSTER_PG_HOST": str(prism.host),
        "PRISM_DAGSTER_PG_PORT": str(prism.port),
        "PRISM_DAGSTER_PG_DB": f"{prism.database}_dagster",
    }
    for service in found.values():
        if "PRISM_DAGSTER_PG_HOST" in service.get("environment", {}):
            assert set(dagster) < set(service["environment"])
            service["environment"] = {**service["environment"], **dagster}
    machine = Machine(folder / "opt", places, {**store, **own}, found)
    machine.folder.mkdir()
    try:
        yield machine
    finally:
        machine.stop()


@pytest.fixture
def machine(
    tmp_path: Path, services: Mapping[str, str], store: Mapping[str, str], postgres: PostgresServer
) -> Iterator[Machine]:
    url = postgres.create_empty_database()
    name = f"{sqlalchemy.make_url(url).database}_dagster"
    postgres.copy_database("template0", name)
    with a_machine(tmp_path, services, store, url) as made:
        if loaded_kernel().module is None:  # the machine that runs the tests has no Rust
            made.env_file = {**made.env_file, "PRISM_KERNEL": ""}
        yield made
    postgres.drop_database(url)
    postgres.drop_database(url.replace(name.removesuffix("_dagster"), name))


def put(store: Mapping[str, str], key: str, body: bytes) -> None:
    """Puts a staging object, as a service does."""
    client = boto3.client(
        "s3",
        endpoint_url=store["PRISM_S3_ENDPOINT"],
        aws_access_key_id=store["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=store["AWS_SECRET_ACCESS_KEY"],
        region_name=store["AWS_REGION"],
        config=Config(s3={"addressing_style": "path"}, proxies={}),
    )
    client.put_object(Bucket=STAGING, Key=key, Body=body)
    client.close()


def rows_of_a_reader(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> int:
    """Counts the rows of the table as a client with the variables of a service."""
    with monkeypatch.context() as patch:
        for name, value in machine.environment("worker").items():
            if name.startswith(("PRISM_", "AWS_")):
                patch.setenv(name, value)
        reader = LakeReader(ReaderSettings())
        try:
            ((count,),) = run_query(reader, "SELECT count(*) FROM log.events").rows
        except PrismError:  # before its first publication, the catalog has no such table
            return 0
    return int(count)


def test_an_object_becomes_a_row_in_the_stack_of_the_compose_file(
    machine: Machine, store: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = machine.run("apply")
    assert (applied.returncode, applied.stderr) == (0, ""), applied.stderr
    for name in ("worker", "code"):
        machine.start(name)
    put(store, "events/one.gz", zipped(as_lines(some_rows(3, utc("2026-11-20T12:00")))))
    machine.await_health("worker")
    deadline = time.monotonic() + 300
    while (found := rows_of_a_reader(machine, monkeypatch)) < 3 and time.monotonic() < deadline:
        assert machine.started["worker"].poll() is None, machine.log("worker")
        time.sleep(0.5)
    assert found == 3, machine.log("worker")
    machine.await_health("code")
    make_newer(machine)
    said = refused(machine, "apply")
    assert said.startswith("prism: the tables of PostgreSQL have version 9999, which this code does not know"), said
    assert len(said.splitlines()) <= 2


def test_dagster_of_the_compose_file_loads_the_tables(machine: Machine, long: bool) -> None:
    if not long:
        pytest.skip("starts the daemon and the web server of the stack: scripts/test --long")
    assert machine.run("apply").returncode == 0
    machine.start("code")
    machine.await_health("code")
    for name in ("daemon", "webserver", "exporter"):
        machine.start(name)
    machine.await_health("exporter")
    deadline = time.monotonic() + 300
    while "new_objects" not in machine.log("daemon"):
        assert machine.started["daemon"].poll() is None, machine.log("daemon")
        assert time.monotonic() < deadline, machine.log("daemon")
        time.sleep(0.5)


def test_the_image_requires_the_kernel() -> None:
    assert image_environment() == {"PRISM_KERNEL": "required", "DAGSTER_HOME": f"{HOME}/home"}


def refused(machine: Machine, name: str, **changes: str | None) -> str:
    """Runs a service that must not begin anything. Returns its one sentence."""
    done = machine.run(name, **changes)
    assert (done.returncode in (1, 2), done.stdout) == (True, ""), done
    return done.stderr.strip()


def test_half_a_configuration_is_one_list_and_nothing_begins(machine: Machine) -> None:
    said = refused(machine, "apply", PRISM_BUCKET=None)
    assert said.startswith("prism: some settings are missing or wrong:\n  PRISM_BUCKET: is not set\n")
    assert tables_of(machine) == []


def test_a_wrong_role_is_one_sentence_and_nothing_begins(machine: Machine) -> None:
    said = refused(machine, "apply", AWS_SECRET_ACCESS_KEY="of-another-account")
    assert said.startswith("prism: s3://prism-lake/prism-installation.json: access denied; check the credentials"), said
    assert len(said.splitlines()) <= 2
    assert tables_of(machine) == []


def tables_of(machine: Machine) -> list[str]:
    """Returns the tables of the lake in PostgreSQL."""
    url = machine.environment("apply")["PRISM_DATABASE_URL"]
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        if connection.exec_driver_sql("SELECT to_regclass('prism_tables')").scalar() is None:
            return []
        return [str(row[0]) for row in connection.exec_driver_sql("SELECT 1 FROM prism_tables")]


def make_newer(machine: Machine) -> None:
    """Makes the database one of a later version."""
    engine = sqlalchemy.create_engine(machine.environment("apply")["PRISM_DATABASE_URL"], poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")


def test_a_service_without_the_kernel_does_not_start(machine: Machine) -> None:
    said = refused(machine, "worker", PRISM_KERNEL="required", PYTHONPATH=str(without_kernel(machine.folder)))
    assert len(said.splitlines()) <= 2
    assert "PRISM_KERNEL is required: install the wheel of this version" in said.replace("\n", " ")


def without_kernel(folder: Path) -> Path:
    """Returns a folder whose kernel cannot be loaded, to stand before the installed one."""
    shadow = folder / "shadow"
    shadow.mkdir()
    (shadow / "prism_kernel.py").write_text("raise ImportError('a wheel of another platform')\n")
    return shadow
