"""The core-seconds of a process with its descendants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from bench.cores import FamilyCores

_PARENT = """
import signal, subprocess, sys
if sys.argv[1] == "ignores":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
work = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\nimport sys; sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("worked", flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
print("ended", flush=True)
sys.stdin.readline()
"""


@contextmanager
def _parent(way: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("way", ["ignores", "waits"])
def test_the_work_of_an_ended_child_counts_once(way: str) -> None:
    with _parent(way) as process:
        meter = FamilyCores(psutil.Process(process.pid))
        assert _told(process) == "worked"
        before = meter.read()
        assert before >= 0.3  # a kernel counts in hundredths
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert _told(process) == "ended"
        assert before <= meter.read() < before + 0.3
