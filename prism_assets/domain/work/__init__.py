"""What stages hand to kernels and what comes back. Plain frozen data: it travels to Spark tasks as JSON.

A kernel does not raise for one bad object: the failure is a field of its result. Tasks on records stand beside what
they are about: `domain/folding.py`, `domain/record_rebuild.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import TypeAdapter

ResultT = TypeVar("ResultT", covariant=True)
_Work = TypeVar("_Work")


class Task(Protocol[ResultT]):
    """Work for the kernel of that name, under one definition of one table, that ends with one result.

    `result` is the class of what comes back.
    """

    kernel: ClassVar[str]
    result: ClassVar[type[Any]]

    @property
    def alone(self) -> bool:
        """Whether it fills a Spark task by itself; others share one, as many as their `input_bytes` allow."""
        ...

    @property
    def table_id(self) -> int:
        """The table, for its definition."""
        ...

    @property
    def definition_version(self) -> int:
        """The definition to work under."""
        ...

    @property
    def task_id(self) -> Hashable:
        """What its result says, too: which task it answers."""
        ...

    @property
    def input_bytes(self) -> int:
        """Bytes to read."""
        ...

    def failed(self, failure: Failure) -> ResultT:
        """The result that says so and no more."""
        ...


class Result(Protocol):
    """What a task ends with."""

    @property
    def task_id(self) -> Hashable:
        """That of the task it answers."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why it failed, or None."""
        ...


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a task failed. Transient failures are worth another attempt, whoever is to blame.

    `at_source` says that the staging object could not be read, or what a merge was to take, and `of_object` that the
    store refuses this object for what it is, as it does those of an archive; `killed` that a worker died over the task;
    `occupied` that other rows lie under a key it was to write.
    """

    message: str
    transient: bool
    at_source: bool = False
    of_object: bool = False
    killed: bool = False
    occupied: bool = False


@dataclass(frozen=True, kw_only=True)
class UnreadObject:
    """An input that is missing or not as recorded: of changes, of what folds wrote, or of another task."""

    key: str
    object_id: int
    """0 where a task does not say it."""
    is_changes: bool
    reason: str
    is_missing: bool = False


def to_json(work: Task[Any] | Result) -> str:
    """One line of JSON; `from_json` reads it back."""
    return _adapter(type(work)).dump_json(work, warnings="error").decode()


def from_json(kind: type[_Work], text: str) -> _Work:
    """Reads a task or a result of that class."""
    work: _Work = _adapter(kind).validate_json(text)
    return work


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
"""Made once a class: that takes as long as a thousand uses."""


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
