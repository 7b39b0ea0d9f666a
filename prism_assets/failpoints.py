"""Named places where a test can make the process die, fail, wait or pause.

`failpoint("merge.after_put")` costs one look-up in an empty mapping if PRISM_FAILPOINTS is unset.

Grammar: `name=[p%][n*]action[->[p%][n*]action…]`, several separated by `;`. A term with `n*` applies n times, then the
next term takes over. A term without `n*` applies for ever. Actions: `kill9`, `raise(Error)` with an error of the error
tree or of Python, `sleep(s)`, `pause(file)` until the file is gone, `off`. Example:
`stream.after_convert=3*off->1*kill9`.

PRISM_FAILPOINTS_LOG names a file. Every failpoint reached is appended to it, one name a line, so a dry run lists the
points for a crash sweep.
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
    """The error of `raise(...)` without the name of a known error."""


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
    """Parses PRISM_FAILPOINTS. Raises SettingsError with the wrong term."""
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
    """Sets this process's failpoints from its environment. A forked process calls it with its own environment."""
    global _POINTS, _LOG
    _POINTS = parse(environment.get("PRISM_FAILPOINTS", ""))
    _LOG = environment.get("PRISM_FAILPOINTS_LOG")


configure(os.environ)


def failpoint(name: str) -> None:
    """Marks a step boundary. Carries out the action in PRISM_FAILPOINTS, normally none."""
    if _LOG:
        with open(_LOG, "a", encoding="utf-8") as log:
            log.write(name + "\n")
    if _POINTS and name in _POINTS:
        _hit(name, _POINTS[name])


def _hit(name: str, terms: list[_Term]) -> None:
    """Carries out the current term. Counts concurrent threads one by one."""
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
