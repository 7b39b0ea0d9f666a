"""What stages ask of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work import ConvertResult, ConvertTask, MergeResult, MergeTask, RepairResult, RepairTask

Definitions = Mapping[tuple[int, int], TableDefinition]
"""Table definitions by (table id, version)."""


class Engine(Protocol):
    """Runs kernels over many tasks. Results come in any order, each as soon as it is there.

    Raises EngineFailed when the job died as a whole (a worker was killed), EngineUnavailable when there is no engine.
    """

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        """Converts staging objects to small objects."""
        ...

    def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
        """Looks at small objects, and converts their staging objects again where they are not sound."""
        ...

    def probe(self) -> None:
        """Does nothing, where kernels run; EngineFailed or EngineUnavailable if not even that works."""
        ...

    def merge(self, tasks: Sequence[MergeTask], definitions: Definitions) -> Iterator[MergeResult]:
        """Writes merged objects."""
        ...
