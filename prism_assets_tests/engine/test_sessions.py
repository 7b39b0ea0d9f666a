"""Sessions on a real Spark Connect server: shared by processes, and replaced when they are over."""

from __future__ import annotations

import atexit
import gc
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import EngineUnavailable, WrongUse
from prism_assets.engine import sessions
from prism_assets.engine.sessions import SUBMITTED, connect, master_setting, open_session
from prism_assets.engine.spark import SparkEngine
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake

_TELL = """\
import os, sys
import pyarrow as pa
from prism_assets.engine.sessions import connect

def tell(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([str(os.getppid())] * len(batch))], ["daemon"])

session = connect(sys.argv[1])
rows = session.range(0, 4, 1, 4).mapInArrow(tell, "daemon string").collect()
print(session.session_id, *sorted({row["daemon"] for row in rows}))
"""


def _addresses_tried(
    remote: str, monkeypatch: pytest.MonkeyPatch, error: str, settings: Mapping[str, object] | None = None
) -> list[str]:
    tried: list[str] = []

    def make(address: str) -> object:
        tried.append(address)
        raise RuntimeError(error)

    monkeypatch.setattr(sessions, "_check_listening", lambda remote: None)
    with pytest.raises((RuntimeError, EngineUnavailable)):
        open_session(remote, make, settings)  # type: ignore[arg-type]  # it never returns
    return tried


@pytest.mark.parametrize("remote", ["sc://localhost:1", "sc://localhost:1/", "sc://localhost:1/;token=t"])
def test_the_id_joins_the_other_parameters(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [address] = _addresses_tried(remote, monkeypatch, "something else")
    whole, _, session_id = address.partition(";session_id=")
    assert whole.rstrip("/") == remote.rstrip("/")
    assert address.count("/;") == 1
    assert len(session_id) == 36


@pytest.mark.parametrize(
    ("address", "setting"),
    [("sc://a:1", {"spark.remote": "sc://a:1"}), ("local[2]", {"spark.master": "local[2]"}), (SUBMITTED, {})],
)
def test_spark_is_told_its_master_unless_spark_submit_tells_it(
    address: str, setting: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert master_setting(address) == setting


def test_a_process_without_spark_submit_has_no_master_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(WrongUse, match="did not start this process"):
        connect(SUBMITTED)


@pytest.mark.stack
def test_a_driver_of_spark_submit_takes_its_master(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        "from prism_assets.engine.sessions import SUBMITTED, connect\n"
        "session = connect(SUBMITTED)\n"
        "print('master', session.sparkContext.master, session.range(3).count())\n"
    )
    submit = Path(sys.executable).with_name("spark-submit")
    # A session of Spark Connect leaves SPARK_CONNECT_MODE_ENABLED in the environment of its process.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", script],
        env={**environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "master local[1] 3" in done.stdout, done.stderr


@pytest.mark.parametrize("remote", ["local[2]", "spark://master:7077", "sc://host/;session_id=mine;token=t"])
def test_what_names_its_session_is_taken_as_it_is(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _addresses_tried(remote, monkeypatch, "something else") == [remote]


def test_after_a_closed_session_come_others_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = _addresses_tried("sc://localhost:1", monkeypatch, "[INVALID_HANDLE.SESSION_CLOSED] closed")
    assert tried[0] == tried[1]
    assert len(set(tried)) == len(tried) - 1 > 24
    assert tried[-1] == "sc://localhost:1", "a session of its own"


def test_other_code_has_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    [before] = _addresses_tried("sc://localhost:1", monkeypatch, "something else")
    monkeypatch.setattr(sessions, "_code", lambda: "other")
    [after] = _addresses_tried("sc://localhost:1", monkeypatch, "something else")
    assert before != after


def test_other_settings_of_spark_have_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: tuple[dict[str, object], ...] = (
        {},
        {"spark.sql.shuffle.partitions": 7},
        {"spark.sql.shuffle.partitions": 8},
    )
    tried = [_addresses_tried("sc://localhost:1", monkeypatch, "something else", given) for given in settings]
    assert len({address for [address] in tried}) == 3


@pytest.fixture
def remote(stack: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server, and generations of sessions that no other test uses or closes."""
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sessions, "_code", lambda: "of these tests")
    sessions._forget()
    yield stack["PRISM_SPARK_REMOTE"]
    sessions._forget()


@pytest.mark.stack
@pytest.mark.filterwarnings("default")  # pyspark leaves sockets open and calls deprecated code
def test_processes_share_a_session_and_its_workers(stack: Mapping[str, str]) -> None:
    command = [sys.executable, "-c", _TELL, stack["PRISM_SPARK_REMOTE"]]
    environment = {**os.environ, **stack}
    told = {subprocess.run(command, env=environment, capture_output=True, check=True).stdout for _ in range(2)}
    [words] = [line.split() for line in told]
    assert len(words) == 2  # one session, one daemon that forks its workers


@pytest.mark.stack
@pytest.mark.filterwarnings("default")
def test_a_session_that_was_closed_is_replaced(remote: str) -> None:
    lake = Lake("nothing", "", StoreConfig())
    engine = SparkEngine(lake, lambda: connect(remote))
    engine.probe()
    first: Any = connect(remote)
    first.client.release_session()  # as the server does after an hour
    engine.probe()
    second: Any = connect(remote)
    assert second.session_id != first.session_id


@pytest.mark.stack
@pytest.mark.filterwarnings("default")
def test_a_session_that_is_collected_leaves_the_threads_of_the_others_alone(remote: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Iterators

    kept: Any = connect(remote)
    address = f"{remote}/;session_id={uuid.uuid4()}"
    other = open_session(address, lambda wanted: SparkSession.builder.remote(wanted).create())
    assert [row[0] for row in other.range(3).toLocalIterator()] == [0, 1, 2]
    pool = Iterators._get_or_create_release_thread_pool()
    del other
    gc.collect()
    assert Iterators._release_thread_pool_instance is pool
    assert kept.range(2).count() == 2


@pytest.mark.stack
@pytest.mark.filterwarnings("default")
def test_stopping_leaves_the_session_to_the_others(remote: str) -> None:
    first: Any = connect(remote)
    first.stop()
    second: Any = connect(remote)
    assert second.session_id == first.session_id


@pytest.mark.stack
@pytest.mark.filterwarnings("default")
def test_a_process_asks_nothing_of_the_server_when_it_exits(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    calls: list[Any] = []
    session: Any = connect(remote)
    monkeypatch.setattr(type(session.client), "execute_command", lambda _client, command: calls.append(command))
    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    address = f"{remote}/;session_id={uuid.uuid4()}"
    other: Any = open_session(address, lambda wanted: SparkSession.builder.remote(wanted).create())
    assert registered, "the client has something to do at the exit"
    for work in registered:
        work()
    assert calls == []
    monkeypatch.undo()
    other.stop()
