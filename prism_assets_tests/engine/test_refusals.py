"""Messages for people when Spark refuses, breaks off or is unreachable, and the difference from a dead job."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions import connect as errors
from pyspark.sql import SparkSession
from pyspark.sql.connect import proto

from prism_assets.domain.errors import EngineFailed, EngineUnavailable, PrismError
from prism_assets.engine import sessions
from prism_assets.engine.sessions import connect, open_session
from prism_assets.engine.spark import SparkEngine
from prism_assets.engine.spark_errors import CHECK_ADDRESS
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.platform import build_context
from prism_assets.settings import Settings
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import another_worker
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("default")  # pyspark calls deprecated code
LAKE = Lake("lake", "", StoreConfig())


class _Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Lets sessions begin, and ends every job with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def service(self, call: Any) -> Any:
        if call.method.endswith("/Config"):
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: proto.ConfigResponse(session_id=request.session_id),
                request_deserializer=proto.ConfigRequest.FromString,
                response_serializer=proto.ConfigResponse.SerializeToString,
            )
        kind = "stream" if call.method.endswith(("ExecutePlan", "ReattachExecute")) else "unary"
        handler = getattr(grpc, f"unary_{kind}_rpc_method_handler")
        return handler(lambda request, context: context.abort(self._code, self._details))


@contextmanager
def spark_that_refuses(code: grpc.StatusCode, details: str) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Refusing(code, details),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"sc://localhost:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def a_session(remote: str) -> Iterator[SparkSession]:
    """A separate session, because the shared one of a process would belong to another server."""
    session = open_session(remote, lambda address: SparkSession.builder.remote(address).create())
    try:
        yield session
    finally:
        session.stop()


@pytest.mark.parametrize(
    ("code", "details", "kind", "sentence"),
    [
        (grpc.StatusCode.INTERNAL, "a worker\n died", EngineFailed, "internal: a worker died: the Spark job died"),
        (grpc.StatusCode.UNKNOWN, "", EngineFailed, "unknown: the Spark job died"),
        (
            grpc.StatusCode.INTERNAL,
            "UNAVAILABLE: Connection refused",
            EngineFailed,
            "internal: UNAVAILABLE: Connection refused: the Spark job died",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "it sleeps",
            EngineUnavailable,
            f"Spark does not answer (unavailable: it sleeps): {CHECK_ADDRESS}",
        ),
        (
            grpc.StatusCode.UNAUTHENTICATED,
            "no",
            EngineUnavailable,
            "Spark refused the token: check SPARK_CONNECT_AUTHENTICATE_TOKEN",
        ),
    ],
)
def test_a_server_that_ends_a_job(code: Any, details: str, kind: type[PrismError], sentence: str) -> None:
    with spark_that_refuses(code, details) as remote, a_session(remote) as session, pytest.raises(kind) as caught:
        SparkEngine(LAKE, lambda: session).probe()
    assert str(caught.value) == sentence


@dataclass
class _Java:
    """A Java exception in the form of Py4J."""

    message: str | None
    cause: _Java | None = None
    _target_id: str = "o48"

    def getMessage(self) -> str | None:  # noqa: N802 - as Java calls it
        return self.message

    def getCause(self) -> _Java | None:  # noqa: N802
        return self.cause


def of_java(*messages: str | None) -> Py4JJavaError:
    """Returns the exception of a classic session for these Java exceptions, the outermost first."""
    raised = None
    for message in reversed(("Exception thrown in awaitResult: ", *messages)):
        raised = _Java(message, raised)
    return Py4JJavaError("An error occurred while calling o47.getResult.\n", raised)


ABORTED = "Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most recent failure: "
LOST = (
    f"{ABORTED}Lost task 3.3 in stage 1.0 (TID 9) (10.0.0.7 executor 2): ExecutorLostFailure (executor 2 exited caused "
    "by one of the running tasks) Reason: java.net.ConnectException: Connection refused: /10.0.0.7:7337"
)
CRASHED = (
    f"{ABORTED}Lost task 0.0 in stage 1.0 (TID 1): org.apache.spark.SparkException: Python worker exited unexpectedly"
)
QUOTED = """Traceback (most recent call last):
  File "worker.py", line 66, in run_share
ValueError: UNAVAILABLE: Cannot connect: [NO_ACTIVE_SESSION] Cannot call methods on a stopped SparkContext
status = StatusCode.UNAVAILABLE details = "a value of a line"
"""
STOPPED = "Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:\n"
SHUT_DOWN = "Job 2 cancelled because SparkContext was shut down"
INTERNAL = grpc.StatusCode.INTERNAL
DIED = {
    "an executor is lost": errors.SparkException(LOST, grpc_status_code=INTERNAL),
    "an executor of a classic master is lost": of_java(LOST),
    "a worker of Python is killed": errors.SparkException(CRASHED, grpc_status_code=INTERNAL),
    "the same on a classic master": of_java(CRASHED, "Python worker exited unexpectedly (crashed).", None),
    "a task says what a server would": errors.PythonException(
        f"\n  An exception was thrown from the Python worker. Please see the stack trace below.\n{QUOTED}",
        grpc_status_code=INTERNAL,
    ),
    "the same on a classic master, too": of_java(f"{ABORTED}Lost task 0.0: PythonException: {QUOTED}", QUOTED),
}
GONE = {
    "the server's context is stopped": errors.UnknownException(
        STOPPED, reason="java.lang.IllegalStateException", grpc_status_code=INTERNAL
    ),
    "it stops under a job": errors.SparkException(SHUT_DOWN, grpc_status_code=INTERNAL),
    "it stops under a job of a classic master": of_java(SHUT_DOWN),
    "a classic context is stopped": of_java(STOPPED),
    "there is no context any more": PySparkRuntimeError(
        errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={}
    ),
    "the session is over": errors.SparkConnectGrpcException(
        "[INVALID_HANDLE.SESSION_CLOSED] The handle 7 is invalid. Session was closed.",
        errorClass="INVALID_HANDLE.SESSION_CLOSED",
        messageParameters={"handle": "7"},
        grpc_status_code=INTERNAL,
    ),
    "Java does not start": PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
    "Java is killed": Py4JError("An error occurred while calling o115.range"),
    "Java hangs up": Py4JNetworkError("Answer from Java side is empty"),
    "nobody listens": ConnectionRefusedError(111, "Connection refused"),
    "the connection is cut": BrokenPipeError(32, "Broken pipe"),
}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *(pytest.param(error, EngineFailed, id=name) for name, error in DIED.items()),
        *(pytest.param(error, EngineUnavailable, id=name) for name, error in GONE.items()),
    ],
)
def test_a_job_that_died_is_told_from_an_engine_that_is_away(error: Exception, kind: type[PrismError]) -> None:
    def no_session() -> SparkSession:
        raise error

    with pytest.raises(PrismError) as caught:
        SparkEngine(LAKE, no_session).probe()
    assert type(caught.value) is kind
    assert "a value of a line" not in str(caught.value)
    assert "\n" not in str(caught.value)


MISSING = """Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 460, in loads
    return cloudpickle.loads(obj, encoding=encoding)
  File "/opt/venv/prism_assets/objectstore/stores.py", line 12, in <module>
    import obstore
ModuleNotFoundError: No module named 'obstore'
"""
OTHER_PYTHON = (
    'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    check_python_version(infile)\n'
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
    "version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.\n"
)
JAVA = "org.apache.spark.api.python.PythonException"
NO_PYTHON = (
    f'{ABORTED}Lost task 0.3 in stage 1.0 (TID 7) (h executor 1): java.io.IOException: Cannot run program "p": e'
)
NO_DAEMON = (
    f"{ABORTED}Lost task 0.3 in stage 1.0 (TID 7) (h executor 1): org.apache.spark.SparkException: \nError from python "
    "worker:\n  /usr/bin/python3: Error while finding module specification for 'prism_assets.engine.daemon' "
    "(ModuleNotFoundError: No module named 'prism_assets')\nPYTHONPATH was:\n  /opt/spark/jars"
)
OURS = QUOTED.replace("worker.py", "/opt/venv/prism_assets/kernels/merge.py")
CAUSES = {
    "an executor lacks a module": (
        errors.PythonException(f"\n  Please see:\n{MISSING}"),
        "No module named 'obstore' on",
    ),
    "the same on a classic master": (of_java(f"{ABORTED}Lost task: {JAVA}: {MISSING}"), "No module named 'obstore'"),
    "an executor has another Python": (
        of_java(f"{ABORTED}: {JAVA}: {OTHER_PYTHON}"),
        "[PYTHON_VERSION_MISMATCH] ",
    ),
    "an executor has no such Python": (of_java(NO_PYTHON), 'Cannot run program "p" on an executor of Spark'),
    "an executor has no such package": (of_java(NO_DAEMON), "No module named 'prism_assets' on an executor of Spark"),
    "an executor is lost": (of_java(LOST), "ExecutorLostFailure (executor 2 exited"),
    "a worker of Python is killed": (errors.SparkException(CRASHED), "Python worker exited unexpectedly: the Spark"),
    "a task raises": (of_java(f"{ABORTED}{JAVA}: {OURS}"), "ValueError at kernels/merge.py:66 in a task of Spark"),
}


@pytest.mark.parametrize(("error", "beginning"), CAUSES.values(), ids=CAUSES)
def test_the_sentence_begins_with_the_cause(error: Exception, beginning: str) -> None:
    def no_session() -> SparkSession:
        raise error

    with pytest.raises(PrismError) as caught:
        SparkEngine(LAKE, no_session).probe()
    assert str(caught.value).startswith(beginning)
    is_of_surroundings = beginning.startswith(("No module", "[PYTHON", "Cannot run"))
    assert isinstance(caught.value, EngineUnavailable) == is_of_surroundings


def test_a_module_that_executors_lack_is_charged_to_no_object(world: World) -> None:
    def no_session() -> SparkSession:
        raise of_java(f"{ABORTED}Lost task: {JAVA}: {MISSING}")

    world.apply(a_table())
    world.drop(some_rows(2, utc("2026-03-01T12:00")))
    sick = another_worker(world, SparkEngine(world.context.lake, no_session))
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="No module named 'obstore' on an executor of Spark: install"):
            sick.stream("2026-03-01T13:00")
    with world.context.database.begin() as connection:
        statement = "SELECT state, attempts FROM prism_staging_objects"
        assert connection.exec_driver_sql(statement).one() == ("pending", 0)
    assert world.stream("2026-03-01T14:00").rows_out == 2


@pytest.mark.parametrize(("stopped", "kind"), [(True, EngineUnavailable), (False, EngineFailed)])
def test_a_classic_spark_that_has_stopped_by_itself_is_away_whatever_it_says(
    monkeypatch: pytest.MonkeyPatch, stopped: bool, kind: type[PrismError]
) -> None:
    java = Mock(**{"sc.return_value.isStopped.return_value": stopped})
    monkeypatch.setattr(SparkContext, "_active_spark_context", Mock(_jsc=java))

    def no_session() -> SparkSession:
        raise of_java("[INTERNAL_ERROR] The Spark SQL phase planning failed with an internal error.")

    with pytest.raises(kind):
        SparkEngine(LAKE, no_session).probe()


def test_a_server_that_is_stopped_between_two_jobs() -> None:
    with spark_that_refuses(grpc.StatusCode.INTERNAL, "") as remote:
        session = open_session(remote, lambda address: SparkSession.builder.remote(address).create())
    with pytest.raises(EngineUnavailable) as caught:
        SparkEngine(LAKE, lambda: session).probe()
    assert str(caught.value) == f"Spark does not answer (unavailable: Connection refused): {CHECK_ADDRESS}"
    session.stop()


@dataclass
class _Silent(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Accepts sessions; their jobs neither end nor respond."""

    over: threading.Event

    def service(self, call: Any) -> Any:
        if not call.method.endswith("/Config"):
            self.over.wait()
        return _Refusing(grpc.StatusCode.INTERNAL, "it is over").service(call)


class _Cable:
    """A connection to be cut silently: no data passes, and nobody hangs up."""

    def __init__(self, port: int) -> None:
        self._server_port, self._cut = port, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not end an accept
        self._listener.close()

    def close(self) -> None:
        self.cut()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, start: socket.socket, end: socket.socket) -> None:
        with suppress(OSError):
            while data := start.recv(65_536):
                if self._cut.is_set():
                    self._cut.wait()
                    continue
                end.sendall(data)


def test_a_host_that_is_gone_without_a_word_ends_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a power cut, or behind a forgetful firewall: connections stay open, but no data arrives."""
    monkeypatch.setattr(sessions, "_SILENCE_SECONDS", 2)
    monkeypatch.setattr(sessions, "_PING_SECONDS", 1)
    over = threading.Event()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Silent(over),))
    cable = _Cable(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    try:
        with a_session(f"sc://localhost:{cable.port}") as session:
            threading.Timer(1, cable.cut).start()
            began = time.monotonic()
            with pytest.raises(EngineUnavailable):
                SparkEngine(LAKE, lambda: session).probe()
            assert time.monotonic() - began < 40
    finally:
        over.set()
        cable.close()
        server.stop(None).wait()


def test_a_port_that_listens_with_no_server_behind_it_is_told_at_once() -> None:
    """A load balancer answers each call with UNAVAILABLE, and the client would treat the error as passing."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Unavailable(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    began = time.monotonic()
    try:
        with pytest.raises(EngineUnavailable, match="no healthy upstream"):
            SparkEngine(LAKE, lambda: connect(f"sc://localhost:{port}")).probe()
    finally:
        server.stop(None).wait()
    assert time.monotonic() - began < 15


def test_a_port_that_listens_and_says_nothing_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ANSWER_SECONDS", 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(EngineUnavailable, match="Spark does not answer"),
    ):
        SparkEngine(LAKE, lambda: connect(f"sc://localhost:{mute.getsockname()[1]}")).probe()


class _Unavailable(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, call: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAVAILABLE, "no healthy upstream")
        )


def test_a_port_that_nobody_listens_at() -> None:
    with pytest.raises(EngineUnavailable) as caught:
        SparkEngine(LAKE, lambda: connect("sc://localhost:1")).probe()
    assert str(caught.value) == f"Spark does not answer (Connection refused): {CHECK_ADDRESS}"


def test_only_the_local_stack_is_started_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_HOME", str(tmp_path))
    told = []
    for remote in ("sc://localhost:1/;token=t", "sc://localhost:2/;token=t"):
        (tmp_path / "env").write_text("PRISM_SPARK_REMOTE=sc://localhost:1/;token=t\n")
        settings = Settings(database_url="postgresql://nobody", bucket="lake", spark_remote=remote)
        with pytest.raises(EngineUnavailable) as caught:
            build_context(settings).engine.probe()
        told.append(str(caught.value).partition(": ")[2])
    assert told == ["start it (`prism local up`)", CHECK_ADDRESS]


def test_a_token_without_tls_is_explained() -> None:
    """The client hides a token from whoever listens, but for a server named localhost."""
    with (
        spark_that_refuses(grpc.StatusCode.INTERNAL, "") as remote,
        pytest.raises(EngineUnavailable, match="speaks no TLS, and Spark's client sends a token over TLS alone"),
    ):
        SparkEngine(LAKE, lambda: connect(remote.replace("localhost", "127.0.0.1") + "/;token=t")).probe()
