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
from prism_assets.engine.allocator import ONE_HEAP, ONE_HEAP_OF_EXECUTORS
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.settings import ReaderSettings
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.defs.server import free_port
from prism_assets_tests.deploy.services import HOME, IMAGE, Machine, image_environment, read_compose
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


def await_rows(machine: Machine, store: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Lets an object of three rows arrive, and waits until a service has made it readable."""
    put(store, "events/one.gz", zipped(as_lines(some_rows(3, utc("2026-11-20T12:00")))))
    deadline = time.monotonic() + 300
    while (found := rows_of_a_reader(machine, monkeypatch)) < 3 and time.monotonic() < deadline:
        assert machine.started[by].poll() is None, machine.log(by)
        time.sleep(0.5)
    assert found == 3, machine.log(by)


def applied(machine: Machine) -> None:
    done = machine.run("apply")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_an_object_becomes_a_row_by_the_worker_of_the_compose_file(
    machine: Machine, store: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    applied(machine)
    machine.start("worker")
    await_rows(machine, store, monkeypatch, "worker")
    machine.await_health("worker")


def test_an_object_becomes_a_row_by_dagster_of_the_compose_file(
    machine: Machine, store: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    if not long:
        pytest.skip("starts the daemon and the web server of the stack: scripts/test --long")
    applied(machine)
    machine.start("code")
    machine.await_health("code")
    for name in ("daemon", "webserver", "exporter"):
        machine.start(name)
    await_rows(machine, store, monkeypatch, "daemon")
    machine.await_health("exporter")
    assert {name: process.poll() for name, process in machine.started.items()} == dict.fromkeys(machine.started)


def test_the_image_requires_the_kernel() -> None:
    assert image_environment() == {"PRISM_KERNEL": "required", "DAGSTER_HOME": f"{HOME}/home"}


def test_spark_of_the_images_starts_python_with_one_heap() -> None:
    said = IMAGE.with_name("spark.Dockerfile").read_text()
    options = IMAGE.with_name("spark-entrypoint.sh").read_text()
    for name, value in ONE_HEAP.items():
        assert f"{name}={value} " in said
    for name, value in ONE_HEAP_OF_EXECUTORS.items():
        assert f"--conf {name}={value} " in options
