"""Runs kernels as tasks of one Spark job, over Spark Connect or classic Spark alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from prism_assets.domain.errors import EngineFailed, EngineUnavailable, PrismError
from prism_assets.domain.tables import Definitions
from prism_assets.domain.work import Task, from_json
from prism_assets.domain.work.merge import MergeTask
from prism_assets.engine.packing import divide
from prism_assets.engine.sessions import UNREACHABLE_STATUSES
from prism_assets.engine.worker import RESULT_SCHEMA, encode_share, run_batches
from prism_assets.objectstore.lake import Lake
from prism_assets.transactions import refuse_inside_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")

_LEAST_SHARES = 4
"""So that a small job still uses a few cores and its shares even out."""


class SparkEngine:
    """An engine on Spark. The session is made at the first job, never before."""

    def __init__(self, lake: Lake, session: Callable[[], SparkSession], *, task_bytes: int = 16 << 20) -> None:
        self._lake = lake
        self._session = session
        self._task_bytes = task_bytes

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs tasks of one kernel as one job; those that are `alone` in a Spark task each, others in even shares."""
        if not tasks:
            return iter(())
        shares = [[task] for task in tasks]
        if not tasks[0].alone:
            shares = divide(tasks, lambda task: task.input_bytes, self._task_bytes, _LEAST_SHARES)
        encoded = [encode_share(tasks[0].kernel, share, definitions, self._lake) for share in shares]
        kind: type[_Result] = tasks[0].result
        return (from_json(kind, text) for text in self._run(encoded))

    def probe(self) -> None:
        """Runs one task that does nothing, with all that a kernel needs imported."""
        for _ in self._run([encode_share(MergeTask.kernel, [], {}, self._lake)]):
            pass

    def _run(self, shares: Sequence[str]) -> Iterator[str]:
        if not shares:
            return
        refuse_inside_transaction("Spark")
        try:
            for row in self._frame(shares).toLocalIterator():
                yield row["result"]
        except PrismError:
            raise
        except Exception as error:
            raise _translated(error) from error

    def _frame(self, shares: Sequence[str]) -> Any:
        """One task a share: `divide` has sized them, Spark must not regroup them.

        The shares travel inside the function. As rows of a frame they would have to be shuffled to one a partition,
        which takes longer than the rest of a small job.
        """

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_batches(batches, shares)

        return self._session().range(0, len(shares), 1, len(shares)).mapInArrow(run, RESULT_SCHEMA)  # type: ignore[arg-type]  # Iterator is what arrives


def _translated(error: Exception) -> Exception:
    """Tells an engine that is not there from a job that died. A failing kernel does neither: it returns its error.

    By what the error is, and not by words in it: that of a job that died quotes what its tasks said. A job that died is
    held against its objects, as long as the engine does something harmless; an engine that is away is not.
    """
    summary, status = _summary(error), _grpc_status(error)
    if status in UNREACHABLE_STATUSES or _is_engine_gone(error):
        return EngineUnavailable(
            f"Spark does not answer: start it (`prism local up`) or check PRISM_SPARK_REMOTE ({summary})"
        )
    if status == "UNAUTHENTICATED":
        return EngineUnavailable("Spark refused the token: check SPARK_CONNECT_AUTHENTICATE_TOKEN")
    return EngineFailed(f"the Spark job died: {summary}")


_GONE_CONDITIONS = (
    "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
    "NO_ACTIVE_SESSION",
    "NO_ACTIVE_OR_DEFAULT_SESSION",
    "SESSION_OR_CONTEXT_NOT_EXISTS",
    "JAVA_GATEWAY_EXITED",
)
"""Conditions of Spark for a session or a Java that is gone, as its errors name them in a field of their own."""
_GONE_MESSAGES = re.compile(
    r"(\([\w.]+\) )?"
    r"(Cannot call methods on a stopped SparkContext|Job \d+ cancelled because SparkContext was shut down)"
)
"""How messages begin for which Spark has no condition. What a task says stands behind other words of Spark's."""
_AWAIT_MESSAGE = "Exception thrown in awaitResult"
"""How errors of Java begin that only pass on what another thread died of."""
_GRPC_REPR = re.compile(r"<\w+ of RPC that terminated with:\s+status = StatusCode\.(\w+)\s+details = \"([^\"]*)")
"""What gRPC shows of an error: its representation, of many lines."""


def _is_engine_gone(error: Exception) -> bool:
    """Whether there is no server, no session on it, or no Java of this process."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, OSError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)):
        return True
    if isinstance(error, Py4JJavaError) and _has_classic_spark_stopped():
        return True
    condition = getattr(error, "getCondition", None)
    if condition is not None and condition() in _GONE_CONDITIONS:
        return True
    return any(map(_GONE_MESSAGES.match, _messages(error)))


def _has_classic_spark_stopped() -> bool:
    """Whether Spark has stopped in the Java of this process, as when its master goes: any error may come of that."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context  # not getOrCreate, which would start another
    return context is not None and bool(context._jsc.sc().isStopped())


def _grpc_status(error: Exception) -> str:
    """The status of a call: errors of Spark Connect have it, and those of gRPC itself."""
    status = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    return str(getattr(status(), "name", "")) if callable(status) else ""


def _messages(error: Exception) -> list[str]:
    """What an error says; of one of Java's, all that led to it, without those who only waited."""
    java, messages = getattr(error, "java_exception", None), []
    while java is not None:
        messages.append(java.getMessage() or "")
        java = java.getCause()
    return [message for message in messages if message and not message.startswith(_AWAIT_MESSAGE)] or [str(error)]


def _summary(error: Exception) -> str:
    """What an error says to a person, in a line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = _messages(error)[0]
    if found := _GRPC_REPR.match(message):
        code, details = found[1].lower().replace("_", " "), " ".join(found[2].split())
        last = details.rpartition(": ")[2] if "last error: " in details else details
        return f"{code}: {last}"[:300] if last else code
    lines = (line.strip() for line in message.splitlines())
    return next((line for line in lines if line and not line.startswith("<_")), type(error).__name__)[:300]
