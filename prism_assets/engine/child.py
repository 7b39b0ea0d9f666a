"""Runs kernels in one long-lived child process: for small work, without the time that a Spark job takes.

A fatal object ends the child and not the parent. The child ends with the pipe, also in the middle of a task, and never
outlives a killed parent.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import IO, Any, TypeVar

from prism_assets.domain.errors import EngineFailed, EngineUnavailable
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task, from_json
from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.allocator import ONE_HEAP
from prism_assets.engine.worker import encode_share
from prism_assets.objectstore.lake import Lake
from prism_assets.transactions import refuse_inside_transaction

_Result = TypeVar("_Result")

SMALL_BYTES = 8 << 20
"""Input of a task that shares the child with others. A larger task has it alone."""
_MOST_RESIDENT_BYTES = 1 << 30
_SILENT_SECONDS = 600.0
"""A child that reads nothing or gives no result for so long hangs, and is killed."""
_READ_BYTES = 1 << 16
COMMAND = (sys.executable, "-m", "prism_assets.engine.child")


class ChildEngine:
    """An engine in one child process, for one thread. The first job, and each job after a death, starts a child."""

    slots = 1
    """Tasks run one after the other."""

    def __init__(
        self,
        lake: Lake,
        *,
        command: Sequence[str] = COMMAND,
        most_bytes: int = _MOST_RESIDENT_BYTES,
        silent_seconds: float = _SILENT_SECONDS,
    ) -> None:
        """Replaces a child above `most_bytes` of memory after a share. Kills a child silent for `silent_seconds`."""
        self._lake, self._command = lake, command
        self._most_bytes, self._silent_seconds = most_bytes, silent_seconds
        self._child: _Child | None = None
        self.deaths = 0
        """Children that died, hung or failed over their work."""

    @property
    def pid(self) -> int | None:
        """The process id of the current child."""
        return self._child.pid if self._child else None

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Runs small tasks together, and then each larger one alone.

        The death of the child raises EngineFailed. A task alone in its job gets a second child first: the first
        may have died by chance, and the object would rest for half a minute.
        """
        small = [task for task in tasks if task.input_bytes <= SMALL_BYTES]
        shares = [*([small] if small else []), *([task] for task in tasks if task.input_bytes > SMALL_BYTES)]
        for share in shares:
            text = encode_share(share[0].kernel, share, definitions, self._lake)
            kind: type[_Result] = share[0].result
            tries = 2 if len(tasks) == 1 else 1
            for line in self._answers(text, tries):
                yield from_json(kind, line)

    def probe(self) -> None:
        """Runs an empty share with the imports of the kernels."""
        for _ in self._answers(encode_share(WriteTask.kernel, [], {}, self._lake), tries=1):
            pass

    def close(self) -> None:
        """Ends the child, if there is one."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _answers(self, share: str, tries: int) -> Iterator[str]:
        """Yields results of a share. A second try repeats the share only if no result was yielded."""
        refuse_inside_transaction("the child process")
        for left in reversed(range(tries)):
            answered = False
            try:
                for line in self._ask(share):
                    answered = True
                    yield line
                return
            except EngineFailed:
                if answered or not left:
                    raise

    def _ask(self, share: str) -> Iterator[str]:
        """Asks the child. A caller that stops early ends the child: later answers would belong to another share."""
        child = self._child = self._child or _Child.start(self._command, self._silent_seconds)
        is_done = False
        try:
            for kind, value in child.ask(share):
                if kind == "result":
                    yield value
                else:
                    is_done = value <= self._most_bytes
        except EngineFailed:
            self.deaths += 1
            raise
        finally:
            if not is_done:
                self.close()


class _Child:
    """The parent's end: a line of JSON for each share, and lines of JSON as answers."""

    def __init__(self, process: subprocess.Popen[bytes], silent_seconds: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._silent_seconds = silent_seconds
        self._received = b""
        os.set_blocking(self._stdin.fileno(), False)  # a child that reads nothing must not hold the loop for ever

    @classmethod
    def start(cls, command: Sequence[str], silent_seconds: float) -> _Child:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env={**os.environ, **ONE_HEAP}
            )
        except OSError as error:
            raise EngineUnavailable(
                f"no child process starts here ({error.strerror}): free memory, or raise the limit of processes"
            ) from error
        return cls(process, silent_seconds)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, share: str) -> Iterator[tuple[str, Any]]:
        """Yields results, and at last the memory of the child. Raises EngineFailed if the child ends earlier."""
        try:
            self._write(share)
        except OSError:
            raise self._death() from None
        while True:
            kind, value = json.loads(self._line())
            if kind == "error":
                raise EngineFailed(f"{value} in the child process, whose traceback is on standard error; the job died")
            yield kind, value
            if kind == "done":
                return

    def _write(self, text: str) -> None:
        data = memoryview(json.dumps(text).encode() + b"\n")
        while data:
            _, ready, _ = select.select([], [self._stdin], [], self._silent_seconds)
            if not ready:
                raise EngineFailed(f"the child process read nothing for {self._silent_seconds:g} s, and was ended")
            data = data[self._stdin.write(data) or 0 :]

    def _line(self) -> bytes:
        silent_until = time.monotonic() + self._silent_seconds
        while b"\n" not in self._received:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, silent_until - time.monotonic()))
            if not ready:
                raise EngineFailed(f"the child process had no result for {self._silent_seconds:g} s, and was ended")
            part = os.read(self._stdout.fileno(), _READ_BYTES)
            if not part:
                raise self._death()
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _death(self) -> EngineFailed:
        status = self._process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return EngineFailed(f"the child process {how}")

    def end(self) -> None:
        """Kills the child. Its uploads are repeated byte by byte, or removed with their attempt."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()


def serve() -> None:
    """The child: runs share after share. Ignores the signals of its terminal and service manager: its parent decides.

    Kernels may print, so results have a descriptor of their own.
    """
    from prism_assets.engine.collector import settle
    from prism_assets.engine.worker import prepare_worker, run_share

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    prepare_worker()
    for share in _shares():
        try:
            for line in run_share(share):
                _answer(results, "result", line)
            _answer(results, "done", _resident_bytes())
        except Exception as error:
            traceback.print_exc()
            _answer(results, "error", type(error).__name__)
        settle()  # after the first share, which imports the kernels; later calls do nothing


def _shares() -> Iterator[str]:
    """Yields shares from standard input. A thread reads them, and ends the process with the pipe during any work."""
    arrived: list[str] = []
    is_there = threading.Semaphore(0)

    def read() -> None:
        try:
            for line in sys.stdin.buffer:
                if not line.endswith(b"\n"):
                    break  # the parent was killed within a write
                arrived.append(json.loads(line))
                is_there.release()
        finally:
            os._exit(0)

    threading.Thread(target=read, name="prism-shares", daemon=True).start()
    while True:
        is_there.acquire()
        yield arrived.pop(0)


def _answer(results: IO[bytes], kind: str, value: object) -> None:
    data = memoryview(json.dumps([kind, value]).encode() + b"\n")
    while data:
        data = data[results.write(data) or 0 :]


def _resident_bytes() -> int:
    """Returns the memory of this process; where /proc is missing, the most it ever had."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


if __name__ == "__main__":
    serve()
