"""Limits the processor time of processes by control groups of Linux, so that one machine stands in for several."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Where the groups of version 1 and of version 2 lie."""
_PERIOD = 100_000
_PATIENCE = 30.0


def can_limit() -> bool:
    """Whether this machine lets us make groups with limits."""
    return _root() is not None


@contextmanager
def cpu_limit(name: str, share: float) -> Iterator[Path]:
    """Makes a group whose processes together use at most `share` of one core. Yields the file that takes their ids.

    Children of its processes are in the group, too. The group goes when they have ended. Raises OSError where groups
    cannot be made.
    """
    root = _root()
    if root is None:
        raise OSError("no control group for processor time can be made here")
    folder = root / f"prism-bench-{os.getpid()}-{name}"
    folder.mkdir()
    try:
        quota = int(share * _PERIOD)
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{quota} {_PERIOD}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        yield folder / "cgroup.procs"
    finally:
        _remove(folder)


def _root() -> Path | None:
    for root in _ROOTS:
        control = root / "cgroup.subtree_control"
        is_first = (root / "cpu.cfs_quota_us").exists()
        is_second = control.exists() and "cpu" in control.read_text().split()
        if (is_first or is_second) and os.access(root, os.W_OK):
            return root
    return None


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            folder.rmdir()
        except OSError:  # a process has not ended yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
