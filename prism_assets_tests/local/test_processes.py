"""Waiting for the end of servers, even while the kernel still reaps them."""

import errno
import os
import platform
import signal
import sys
from pathlib import Path

import pytest

from prism_local import processes

# The system call that ends a single thread, by architecture.
_EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]


def _a_server(folder: Path, seconds: int) -> processes.Launch:
    return processes.Launch(["sleep", str(seconds)], {}, folder)


def test_the_logs_of_the_last_starts_are_kept_and_no_more(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    for start in range(8):
        launch = processes.Launch([sys.executable, "-c", f"print('start {start}')"], os.environ, tmp_path)
        processes.wait([processes.spawn(launch, log)], 60)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    earlier = {f"server.log.{number}": f"start {7 - number}\n" for number in range(1, 6)}
    assert kept == {"server.log": "start 7\n", **earlier}


def test_a_wait_returns_those_that_still_run(tmp_path: Path) -> None:
    short, long = (processes.spawn(_a_server(tmp_path, seconds), tmp_path / "log") for seconds in (0, 60))
    try:
        assert processes.wait([short], 20) == []
        assert processes.wait([short, long], 0.1) == [long]
    finally:
        assert processes.stop(long, signal.SIGKILL, 20) == []


def test_a_server_is_stopped_where_the_kernel_knows_no_descriptor_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = processes.spawn(_a_server(tmp_path, 60), tmp_path / "log")
    kernel = os.pidfd_open

    def reaped(pid: int, flags: int = 0) -> int:
        if pid == server.pid:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return kernel(pid, flags)

    monkeypatch.setattr(os, "pidfd_open", reaped)
    assert processes.stop(server, signal.SIGKILL, 20) == []
    assert not processes.is_alive(server)


def test_a_process_has_not_ended_before_its_last_thread_has(tmp_path: Path) -> None:
    """A killed Java server is a zombie first, and frees its port a moment later."""
    first_thread_ends = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
    first_thread_ends += f"ctypes.CDLL(None).syscall({_EXIT}, 0)"
    launch = processes.Launch([sys.executable, "-c", first_thread_ends], {}, tmp_path)
    server = processes.spawn(launch, tmp_path / "log")
    try:
        while processes.is_alive(server):
            pass
        assert processes.wait([server], 0.1) == [server]
    finally:
        server.kill()
    assert processes.wait([server], 20) == []
