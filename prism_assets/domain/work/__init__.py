"""Tasks for kernels, and their results: frozen data that travels to Spark tasks and back as JSON.

A kernel raises nothing for one bad object: the failure is a field of the result. Tasks on records stand in
`domain/records/folding.py` and `domain/records/rebuild.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import TypeAdapter

ResultT = TypeVar("ResultT", covariant=True)
_Work = TypeVar("_Work")


class Task(Protocol[ResultT]):
    """Work for one kernel, under one definition of one table. Each task ends with one result."""

    kernel: ClassVar[str]
    """The name of the kernel in `kernels/registry.py`."""
    result: ClassVar[type[Any]]
    """The class of the result."""

    @property
    def alone(self) -> bool:
        """Whether it fills a Spark task by itself; others share one, as many as their `input_bytes` allow."""
        ...

    @property
    def table_id(self) -> int:
        """The table of the definition."""
        ...

    @property
    def definition_version(self) -> int:
        """The definition to work under."""
        ...

    @property
    def task_id(self) -> Hashable:
        """Tells the task from the others of its job; the result has the same."""
        ...

    @property
    def input_bytes(self) -> int:
        """Bytes to read."""
        ...

    def failed(self, failure: Failure) -> ResultT:
        """A result with this failure and nothing else."""
        ...


class Result(Protocol):
    """The end of a task."""

    @property
    def task_id(self) -> Hashable:
        """The id of the task."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why the task failed, or None."""
        ...


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a task failed."""

    message: str
    transient: bool
    """Whether another attempt may succeed."""
    at_source: bool = False
    """Whether an input could not be read: the staging object, or an object to merge."""
    of_object: bool = False
    """Whether the store refuses this object and serves others, as it refuses objects in an archive."""
    killed: bool = False
    """Whether a worker died over the task."""
    occupied: bool = False
    """Whether other rows lie under the key of the task's output."""


def is_occupied(result: Result) -> bool:
    """Whether a task wrote nothing because other rows lie under the key of its output."""
    return result.failure is not None and result.failure.occupied


@dataclass(frozen=True, kw_only=True)
class UnreadObject:
    """An input of a task, missing or not as recorded."""

    key: str
    object_id: int
    """0 where the task does not say the id."""
    is_changes: bool
    """Whether the object holds changes of the log; otherwise a fold or a merge wrote it."""
    reason: str
    is_missing: bool = False


def to_json(work: Task[Any] | Result) -> str:
    """Renders a task or a result as one line of JSON; `from_json` reads the line."""
    return _adapter(type(work)).dump_json(work, warnings="error").decode()


def from_json(kind: type[_Work], text: str) -> _Work:
    """Reads a task or a result of that class."""
    work: _Work = _adapter(kind).validate_json(text)
    return work


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
"""Made once a class, because making one takes as long as a thousand uses."""


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
