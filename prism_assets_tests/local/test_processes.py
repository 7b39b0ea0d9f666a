"""Waiting for servers to end, whatever the kernel says of those that are just being reaped."""

import errno
import os
import signal
from pathlib import Path

import pytest

from prism_local import processes


def _a_server(folder: Path, seconds: int) -> processes.Launch:
    return processes.Launch(["sleep", str(seconds)], {}, folder)


def test_a_wait_returns_those_that_still_run(tmp_path: Path) -> None:
    short, long = (processes.spawn(_a_server(tmp_path, seconds), tmp_path / "log") for seconds in (0, 60))
    try:
        assert processes.wait([short], 20) == []
        assert processes.wait([short, long], 0.1) == [long]
    finally:
        assert processes.stop(long, signal.SIGTERM, 20) == []


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
    assert processes.stop(server, signal.SIGTERM, 20) == []
    assert not processes.is_alive(server)
