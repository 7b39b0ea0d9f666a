"""Named places where a test can make the process die, fail, wait or stand still.

`failpoint("merge.after_put")` costs one dictionary look-up of an empty mapping when PRISM_FAILPOINTS is unset.
Grammar: `name=[p%][n*]action[->[p%][n*]action…]`, several separated by `;`. A term with `n*` is used n times,
then the next one takes over; without `n*` it is used for ever. Actions: `kill9`, `raise(Error)` (an error of the
error tree, or one of Python's own), `sleep(s)`, `pause(file)` (until the file is gone), `off`. Example:
`stream.after_convert=3*off->1*kill9`.

PRISM_FAILPOINTS_LOG names a file to which every failpoint reached is appended, one name a line: a dry run
with it lists the points a crash sweep must cover.
"""

import builtins
import os
import random
import re
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prism_assets.domain import errors


class InjectedFault(errors.TransientError):
    """The fault that `raise(...)` throws when it names no error of the error tree."""


@dataclass
class _Term:
    percent: float
    left: int | None
    action: str
    argument: str


_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TERM = re.compile(
    r"(?:(?P<percent>\d+(?:\.\d+)?)%)?(?:(?P<count>\d+)\*)?(?P<action>kill9|raise|sleep|pause|off)(?:\((?P<arg>[^)]*)\))?"
)


def parse(text: str) -> dict[str, list[_Term]]:
    """Parses the value of PRISM_FAILPOINTS; raises SettingsError naming the term that does not fit."""
    points: dict[str, list[_Term]] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, _, chain = entry.partition("=")
        terms = []
        for term in chain.split("->"):
            match = _TERM.fullmatch(term.strip())
            if match is None or (match["action"] == "sleep" and not _NUMBER.fullmatch(match["arg"] or "")):
                raise errors.SettingsError(f"PRISM_FAILPOINTS: {term!r} in {entry!r} is not a failpoint action")
            count = match["count"]
            terms.append(
                _Term(
                    float(match["percent"] or 100),
                    int(count) if count else None,
                    match["action"],
                    match["arg"] or "",
                )
            )
        points[name.strip()] = terms
    return points


_LOCK = threading.Lock()
_POINTS: dict[str, list[_Term]] = {}
_LOG: str | None = None


def configure(environment: Mapping[str, str]) -> None:
    """Sets the failpoints of this process as its environment says; a process that was forked calls it with its own."""
    global _POINTS, _LOG
    _POINTS = parse(environment.get("PRISM_FAILPOINTS", ""))
    _LOG = environment.get("PRISM_FAILPOINTS_LOG")


configure(os.environ)


def failpoint(name: str) -> None:
    """Marks a step boundary; does what PRISM_FAILPOINTS says about it, normally nothing."""
    if _LOG:
        with open(_LOG, "a", encoding="utf-8") as log:
            log.write(name + "\n")
    if _POINTS and name in _POINTS:
        _hit(name, _POINTS[name])


def _hit(name: str, terms: list[_Term]) -> None:
    """Does what the term whose turn it is says. Threads that come at once are counted one by one."""
    with _LOCK:
        term = next((term for term in terms if term.left != 0), None)
        if term is None or random.random() * 100 >= term.percent:
            return
        if term.left is not None:
            term.left -= 1
    _act(name, term)


def _act(name: str, term: _Term) -> None:
    if term.action == "kill9":
        os.kill(os.getpid(), signal.SIGKILL)
    elif term.action == "raise":
        raise _error_named(term.argument)(f"failpoint {name}")
    elif term.action == "sleep":
        time.sleep(float(term.argument))
    elif term.action == "pause":
        path = Path(term.argument)
        path.with_suffix(path.suffix + ".reached").touch()
        while path.exists():
            time.sleep(0.01)


def _error_named(name: str) -> type[Exception]:
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else InjectedFault
