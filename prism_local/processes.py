"""Starts servers that outlive the command, finds them again, and stops only them.

A process is ours if its id, creation time and a marker on its command line all agree. An id alone may belong to another
process after a reboot.
"""

import os
import pwd
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

import psutil

from prism_local.faults import StackError

# Creation times are computed from the boot time, which shifts a little after clock corrections.
_CLOCK_TOLERANCE = 2.0

# Logs of earlier starts: a second failing start must not erase why the first one failed.
_KEPT_LOGS = 5

# Seconds between two checks on ending processes.
_LOOKS_EVERY = 0.02

# Servers started by this process: it must wait for them, or they remain as zombies.
_CHILDREN: dict[int, "subprocess.Popen[bytes]"] = {}


@dataclass(frozen=True)
class Identity:
    """A process, unmistakably: its id, and its creation time in seconds since 1970."""

    pid: int
    created: float


@dataclass(frozen=True)
class Launch:
    """How to start a server. `account` is the user of the process, None for our own."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    account: str | None = None


def identify(process: psutil.Process) -> Identity:
    """Returns the identity of a process."""
    return Identity(process.pid, process.create_time())


def find(identity: Identity, marker: str) -> psutil.Process | None:
    """Returns the process if it is alive and still the one we started."""
    _reap(identity.pid)
    with suppress(psutil.Error):
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.created) <= _CLOCK_TOLERANCE
        words = process.cmdline()
        # The command line is briefly empty while a launcher turns into the server.
        if same and is_alive(process) and (not words or any(marker in word for word in words)):
            return process
    return None


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs. A zombie does not."""
    _reap(process.pid)
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def marked(marker: str) -> list[psutil.Process]:
    """Returns all living processes with the marker on their command line, started by anybody."""
    return [p for p in psutil.process_iter() if p.pid != os.getpid() and _is_marked(p, marker) and is_alive(p)]


def _is_marked(process: psutil.Process, marker: str) -> bool:
    try:
        return any(marker in word for word in process.cmdline())
    except psutil.Error:
        return False


def _reap(pid: int) -> None:
    child = _CHILDREN.get(pid)
    if child is not None and child.poll() is not None:
        del _CHILDREN[pid]


def spawn(launch: Launch, log: Path) -> psutil.Process:
    """Starts a server in its own session, with its output in the log file. Raises StackError if this fails.

    Keeps logs of earlier starts, from `….log.1`, the latest, to `….log.5`.
    """
    try:
        keep_log(log)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            child = _popen(launch, descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StackError(f"cannot start {launch.command[0]}: {error}") from None
    _CHILDREN[child.pid] = child
    return psutil.Process(child.pid)


def keep_log(log: Path) -> None:
    """Makes room for a new log: renumbers earlier ones and drops the oldest."""
    kept = [log, *(log.with_name(f"{log.name}.{number}") for number in range(1, _KEPT_LOGS + 1))]
    for newer, older in reversed(list(pairwise(kept))):
        with suppress(FileNotFoundError):
            os.replace(newer, older)


def _popen(launch: Launch, log: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        list(launch.command),
        env=dict(launch.environment),
        cwd=launch.folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        **account_arguments(launch.account),
    )


class AccountArguments(TypedDict, total=False):
    """Arguments of subprocess for another user."""

    user: int
    group: int
    extra_groups: list[int]


def account_arguments(account: str | None) -> AccountArguments:
    """Returns subprocess arguments to run a program as another user, in none of our groups."""
    if account is None:
        return {}
    entry = pwd.getpwnam(account)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def family(process: psutil.Process) -> list[psutil.Process]:
    """Returns a process and its descendants."""
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return [process]


def without_descendants(found: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Leaves out ended processes, and descendants of others in the list."""
    listed = set(found)
    kept = []
    for process in found:
        with suppress(psutil.Error):
            if not listed.intersection(process.parents()):
                kept.append(process)
    return kept


def stop(process: psutil.Process, signal: int, patience: float) -> list[int]:
    """Ends a server and its descendants. Returns the ids of killed ones.

    Sends the server a signal, and kills the rest after `patience` seconds. psutil refuses to signal a process whose id
    was reused meanwhile.
    """
    members = family(process)
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal)
    wait([process], patience)
    # Children of an orderly server may need a moment more; those of a killed one end here.
    left = wait(_union(members, family(process)), 1.0)
    for member in left:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    wait(left, 5.0)
    return [member.pid for member in left]


def _union(*groups: Iterable[psutil.Process]) -> list[psutil.Process]:
    return list({member: None for group in groups for member in group})


def wait(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Waits at most `seconds` until all processes have ended. Returns those still running.

    Polls, because psutil's own wait opens a descriptor of the process. If the process is just being reaped, this fails
    with an ENOENT that psutil does not handle.
    """
    deadline = time.monotonic() + seconds
    left = [process for process in processes if not _has_ended(process)]
    while left and time.monotonic() < deadline:
        time.sleep(_LOOKS_EVERY)
        left = [process for process in left if not _has_ended(process)]
    return left


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process has released everything. If its first thread is a zombie, it keeps its ports until the last one
    ends.
    """
    _reap(process.pid)
    try:
        return not process.is_running() or (process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.Error:
        return True


def memory(process: psutil.Process) -> int:
    """Returns the memory of a process and its descendants in bytes. Counts shared pages once if possible."""
    return sum(_memory_of(member) for member in family(process))


def _memory_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        full = process.memory_full_info()
        return int(getattr(full, "pss", 0) or full.uss)
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0
