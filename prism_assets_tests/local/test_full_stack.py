"""All servers together, with Spark: started once."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from prism_assets.domain.errors import TerminalError
from prism_assets.metadata.database import Database
from prism_assets_tests.engine.waiting import until
from prism_assets_tests.local.test_stack import pid_of, status_of
from prism_local import credentials
from prism_local.service import Context
from prism_local.spark import Spark
from prism_local.stack import SERVERS, LocalStack

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def keys_that_are_set(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = ",".join(name for name in KEYS if os.environ.get(name))
        yield pa.RecordBatch.from_pydict({"names": pa.array([found] * batch.num_rows)})


def names_that_a_task_finds(stack: LocalStack) -> str:
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    # The server cannot import the tests, so the function travels by value.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    session = SparkSession.builder.remote(stack.environment()["PRISM_SPARK_REMOTE"]).create()
    try:
        return str(session.range(1).mapInArrow(keys_that_are_set, "names string").collect()[0].names)
    finally:
        session.stop()


def test_everything_starts_and_spark_tasks_find_the_keys(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    report = stack.up()
    assert report.started == SERVERS
    assert {service.state for service in report.services} == {"running"}

    stranger = replace(credentials.load(stack.place), spark_token="wrong")
    port = status_of(stack, "spark").port
    assert port is not None
    with pytest.raises(TerminalError, match="refuses our token"):
        Spark(Context(stack.place, stranger)).is_ready(port)

    token = stack.environment()["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", token)
    assert names_that_a_task_finds(stack) == ",".join(KEYS)

    spark = pid_of(stack, "spark")
    assert stack.up().started == ()
    assert pid_of(stack, "spark") == spark

    database = Database(stack.environment()["PRISM_DATABASE_URL"])
    database.migrate()
    database.dispose()
    assert stack.up(services=("worker",)).started == ("worker",)
    log = stack.place.log("worker")
    until(lambda: "no lake belongs to this database yet" in log.read_text(), "the worker's first turn")
    assert status_of(stack, "worker").state == "running"
    told: list[tuple[str, str]] = []
    assert set(stack.down(lambda service, message: told.append((service, message))).stopped) == {*SERVERS, "worker"}
    assert told[:2] == [("worker", "stopping"), ("worker", "stopped")]
