"""Translates errors of Spark into errors of this package. The sentence of each begins with the cause."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.errors import EngineFailed, EngineUnavailable
from prism_assets.engine.sessions import UNREACHABLE_STATUSES
from prism_assets.unreachable import check_address

CHECK_ADDRESS = check_address("PRISM_SPARK_REMOTE")
_INSTALL = (
    "install this version of prism-assets with the packages that docs/deploy.md names in the Python of all "
    "executors (PYSPARK_PYTHON); nothing was changed, and the next run goes on"
)
_NEEDS_TLS = (
    "the server speaks no TLS, and Spark's client sends a token over TLS alone: let a proxy with TLS answer at this "
    "address, or name a server of the same machine localhost"
)
_LONGEST = 300


def translated(error: Exception, advice: Callable[[], str]) -> Exception:
    """Tells an engine that is not there, or lacks a module, from a job that died over what it was given.

    A failing kernel does neither: it returns its error. A job that died is held against its objects, as long as the
    engine does something harmless; a fault of the engine is charged to nobody. Words of tasks are data and may quote a
    line of a log, so the decision goes by types and by Spark's own words before them.
    """
    if raised := _raised_in_python(error):
        if raised.is_of_surroundings:
            return EngineUnavailable(f"{raised.message} on an executor of Spark: {_INSTALL}")
        return EngineFailed(f"{raised.name}{raised.place} in a task of Spark, whose executor logs it; the job died")
    summary, status = _summary(error), _grpc_status(error)
    if found := _NO_PROGRAM.search(summary):
        return EngineUnavailable(
            f"{found[0]} on an executor of Spark: set PYSPARK_PYTHON to a Python that all executors have; nothing was "
            "changed, and the next run goes on"
        )
    if status in UNREACHABLE_STATUSES or _is_engine_gone(error):
        if status and "WRONG_VERSION_NUMBER" in str(error):
            return EngineUnavailable(f"Spark does not answer: {_NEEDS_TLS}")
        return EngineUnavailable(f"Spark does not answer ({summary}): {advice()}")
    if status == "UNAUTHENTICATED":
        return EngineUnavailable("Spark refused the token: check SPARK_CONNECT_AUTHENTICATE_TOKEN")
    return EngineFailed(f"{summary}: the Spark job died")


@dataclass(frozen=True)
class _Raised:
    """An exception of Python in a task."""

    name: str
    message: str
    place: str

    @property
    def is_of_surroundings(self) -> bool:
        """Whether the Python of an executor lacks something that any work needs."""
        return self.name.endswith(("ModuleNotFoundError", "ImportError")) or self.message.startswith(
            "[PYTHON_VERSION_MISMATCH]"
        )


_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_OUR_FRAME = re.compile(r'  File "[^"]*/prism_assets/([^"]+)", line (\d+)')


def _raised_in_python(error: Exception) -> _Raised | None:
    """Reads the first traceback in an error, that of the cause: its frames are indented, the next line is no data."""
    for message in _messages(error):
        _, found, text = message.partition(_TRACEBACK)
        if not found:
            continue
        place = ""
        for line in text.splitlines():
            if frame := _OUR_FRAME.match(line):
                place = f" at {frame[1]}:{frame[2]}"
            elif raised := _EXCEPTION.fullmatch(line.rstrip()):
                return _Raised(raised[1].rpartition(".")[2], (raised[2] or "")[:_LONGEST], place)
    return None


_NO_PROGRAM = re.compile(r'Cannot run program "[^"]+"')
_LAST_FAILURE = re.compile(
    r"Job aborted due to stage failure: .{0,200}?most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\)(?: \([^)]*\))?: (?:[\w.]+Exception: )?"
)
"""Words of Spark before the cause of a job's death."""


def _summary(error: Exception) -> str:
    """Shortens an error to one line, which begins with the cause."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = _messages(error)[0]
    if found := _GRPC_REPR.match(message):
        code, details = found[1].lower().replace("_", " "), " ".join(found[2].split())
        last = details.rpartition(": ")[2] if "last error: " in details else details
        return f"{code}: {last}"[:_LONGEST] if last else code
    lines = (line.strip() for line in message.splitlines())
    line = next((line for line in lines if line and not line.startswith("<_")), type(error).__name__)
    return _LAST_FAILURE.sub("", line)[:_LONGEST]


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
"""Beginnings of messages for which Spark has no condition. Words of a task stand after other words of Spark's."""
_AWAIT_MESSAGE = "Exception thrown in awaitResult"
"""How errors of Java begin that only pass on what another thread died of."""
_GRPC_REPR = re.compile(r"<\w+ of RPC that terminated with:\s+status = StatusCode\.(\w+)\s+details = \"([^\"]*)")
"""The representation of an error of gRPC, of many lines."""


def _is_engine_gone(error: Exception) -> bool:
    """Whether there is no server, no session on it, or no Java of this process."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    if isinstance(error, OSError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)):
        return True
    if isinstance(error, Py4JJavaError | CapturedException) and _has_classic_spark_stopped():
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
    """The messages of an error and, from Java, of its causes. Errors that only pass on another one are left out."""
    java, messages = getattr(error, "java_exception", None), []
    while java is not None:
        messages.append(java.getMessage() or "")
        java = java.getCause()
    return [message for message in messages if message and not message.startswith(_AWAIT_MESSAGE)] or [str(error)]
