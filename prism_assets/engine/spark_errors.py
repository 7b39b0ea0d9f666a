"""Translates Spark errors into errors of this package. Every message begins with the cause."""

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
    """Translates an error of a Spark job. EngineUnavailable: no server answers, or an executor lacks a module.
    EngineFailed: the job died over its tasks.

    A failing kernel raises neither, because it returns its error as a result. Stages charge a job's death to its
    objects only while the engine can still run an empty task, so a fault of the engine is charged to nobody. Task
    messages are data and may quote log lines. Therefore only exception types, and Spark's own words in front of a
    task's message, decide.
    """
    if raised := _raised_in_python(error):
        if raised.is_of_surroundings:
            return EngineUnavailable(f"{raised.message} on an executor of Spark: {_INSTALL}")
        return EngineFailed(f"{raised.name}{raised.place} in a task of Spark, whose executor logs it; the job died")
    summary, status = _summary(error), _grpc_status(error)
    if found := _NO_DAEMON.search("\n".join(_messages(error))):
        return EngineUnavailable(f"{found[1]} on an executor of Spark: {_INSTALL}")
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
    """A Python exception in a task."""

    name: str
    message: str
    place: str

    @property
    def is_of_surroundings(self) -> bool:
        """Whether the executor's Python lacks a module or has the wrong version, so that every task would fail."""
        return self.name.endswith(("ModuleNotFoundError", "ImportError")) or self.message.startswith(
            "[PYTHON_VERSION_MISMATCH]"
        )


_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_OUR_FRAME = re.compile(r'  File "[^"]*/prism_assets/([^"]+)", line (\d+)')


def _raised_in_python(error: Exception) -> _Raised | None:
    """Reads the first traceback in an error, which is the cause. Frames are indented, so the first line without
    indentation names the exception and quotes no data.
    """
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


_NO_DAEMON = re.compile(
    r"Error while finding module specification for 'prism_assets\.engine\.daemon' "
    r"\(ModuleNotFoundError: (No module named '[\w.]+')\)"
)
"""The words of an executor's Python that cannot start the daemon of its workers."""
_NO_PROGRAM = re.compile(r'Cannot run program "[^"]+"')
_LAST_FAILURE = re.compile(
    r"Job aborted due to stage failure: .{0,200}?most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\)(?: \([^)]*\))?: (?:[\w.]+Exception: )?"
)
"""Spark's own words in front of the cause of a job's death."""


def _summary(error: Exception) -> str:
    """Shortens an error to one line that begins with the cause."""
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
"""Error conditions of Spark for a lost session or a stopped JVM. Spark's errors carry the condition in a separate
field.
"""
_GONE_MESSAGES = re.compile(
    r"(\([\w.]+\) )?"
    r"(Cannot call methods on a stopped SparkContext|Job \d+ cancelled because SparkContext was shut down)"
)
"""Beginnings of messages without a condition in Spark. Task messages never stand at the beginning."""
_AWAIT_MESSAGE = "Exception thrown in awaitResult"
"""The beginning of Java errors that only wrap the error of another thread."""
_GRPC_REPR = re.compile(r"<\w+ of RPC that terminated with:\s+status = StatusCode\.(\w+)\s+details = \"([^\"]*)")
"""The representation of a gRPC error, in several lines."""


def _is_engine_gone(error: Exception) -> bool:
    """Whether the server, its session or the JVM of this process is gone."""
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
    """Whether Spark has stopped in the JVM of this process, as after the loss of its master. Any error may follow."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context  # getOrCreate would start another context
    return context is not None and bool(context._jsc.sc().isStopped())


def _grpc_status(error: Exception) -> str:
    """Returns the status name of a gRPC call, or "". Errors of Spark Connect and of gRPC itself carry one."""
    status = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    return str(getattr(status(), "name", "")) if callable(status) else ""


def _messages(error: Exception) -> list[str]:
    """Returns the messages of an error and of its Java causes, without wrappers that add nothing."""
    java, messages = getattr(error, "java_exception", None), []
    while java is not None:
        messages.append(java.getMessage() or "")
        java = java.getCause()
    return [message for message in messages if message and not message.startswith(_AWAIT_MESSAGE)] or [str(error)]
