"""Turns errors of a kernel into failures of its task, and decides whose fault each error is."""

from __future__ import annotations

import traceback

from prism_assets.domain.errors import (
    NOT_ITS_FAULT,
    ExpressionsFailed,
    KeyOccupied,
    MissingSecret,
    ObjectArchived,
    PrismError,
    SecretsUnavailable,
    WorkerUnavailable,
)
from prism_assets.domain.work import Failure

_OURS = "/prism_assets/"
_OF_THE_WORKER = (WorkerUnavailable, MissingSecret, SecretsUnavailable, ExpressionsFailed)
"""Errors that leave open whether the object can be read."""


def failure_of(
    error: Exception, doing: str, *, at_source: bool = False, passing: tuple[type[PrismError], ...] = NOT_ITS_FAULT
) -> Failure:
    """The failure of a task. `doing` is a clause for errors without a message of ours, such as "x was written".

    A worker without room on disk, open files or threads is no fault of the object, wherever the error shows. A
    MemoryError is raised again and ends the job.
    """
    if isinstance(error, MemoryError):
        raise error
    if _is_of_the_machine(error):
        error = WorkerUnavailable(f"the machine of the worker has no resources left ({error}) while {doing}")
    if not isinstance(error, PrismError):
        told = f"{type(error).__name__}{_place(error)} while {doing}"  # the message may hold values
        return Failure(message=told, transient=False)
    return Failure(
        message=str(error).encode(errors="backslashreplace").decode(),  # a path may hold halves of pairs
        transient=isinstance(error, passing),
        at_source=at_source and not isinstance(error, _OF_THE_WORKER),
        of_object=isinstance(error, ObjectArchived),
        occupied=isinstance(error, KeyOccupied),
    )


def _place(error: Exception) -> str:
    """The last line of prism_assets in the traceback. Unlike the message, it never holds a value of a row."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _OURS in frame.filename]
    return f" in {frames[-1].filename.rpartition(_OURS)[2]}:{frames[-1].lineno}" if frames else ""


def _is_of_the_machine(error: Exception) -> bool:
    """Whether the operating system raised the error. Libraries that cannot read bytes set no number."""
    return (isinstance(error, OSError) and error.errno is not None) or "can't start new thread" in str(error)
