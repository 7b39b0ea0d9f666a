"""A merge job from its claim to its commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from prism_assets.domain.files.data_file import DataFile, MergedRange
from prism_assets.domain.files.rewrites import Rewrite
from prism_assets.domain.merges.plan import PlannedRange
from prism_assets.domain.work import Failure, is_occupied
from prism_assets.domain.work.write import WriteResult
from prism_assets.metadata.files.merge_jobs import MergeJob
from prism_assets.stages.merge.plan import PartitionPlan
from prism_assets.stages.merge.report import MergedPartition


@dataclass
class RunningJob:
    """A claimed job. Results come in by range, and the last one leads to the commit."""

    plan: PartitionPlan
    job: MergeJob
    started: datetime
    rewrite: Rewrite | None
    """None if the plan writes nothing."""
    results: dict[int, WriteResult] = field(default_factory=dict)
    """Results by the place of the range in the plan."""

    @property
    def is_complete(self) -> bool:
        """Whether every range has its result."""
        return len(self.results) == len(self.plan.merge.ranges)

    @property
    def failure(self) -> Failure | None:
        """The failure of an unwritten range, if any. It prevents the commit."""
        return next((result.failure for result in self.results.values() if result.failure), None)

    @property
    def is_occupied(self) -> bool:
        """Whether other objects have keys with the number of this rewrite, as after a restore of PostgreSQL."""
        return any(map(is_occupied, self.results.values()))

    @property
    def written(self) -> list[tuple[PlannedRange, MergedRange]]:
        """Written ranges in order, each with its plan, without failed ones."""
        return [
            (planned, self._range(planned, file))
            for place, planned in enumerate(self.plan.merge.ranges)
            if (file := self.results[place].written) is not None
        ]

    def _range(self, planned: PlannedRange, file: DataFile) -> MergedRange:
        assert self.rewrite is not None
        made = MergedRange.of(file, planned.lower_bound, planned.upper_bound, self.rewrite.rewrite_id)
        return replace(made, definition_version=self.plan.table.version)

    @property
    def input_keys(self) -> list[str]:
        """The first and the last input of each unwritten range: enough to find out whether any of them is readable."""
        inputs = [self.plan.merge.ranges[place].inputs for place, result in self.results.items() if result.failure]
        return [key for entries in inputs for key in {entries[0].key, entries[-1].key}]

    def summary(self) -> MergedPartition:
        """Returns the result of the commit, or of the commit it would have been."""
        plan = self.plan.merge
        return MergedPartition(
            table_id=self.plan.table.table_id,
            date=self.plan.partition.date,
            objects_in=sum(len(planned.objects) or 1 for planned in plan.ranges),
            rows=sum(planned.row_count for planned in plan.ranges),
            bytes_in=sum(planned.input_bytes for planned in plan.ranges),
            sizes_in=tuple(file.content_length for planned in plan.ranges for file in planned.inputs),
            sizes=tuple(file.content_length for _, file in self.written),
            plan=self.plan.describe(),
            left_behind=plan.left_behind,
            reason=plan.reason,
        )
