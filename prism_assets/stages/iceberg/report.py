"""What a publication of Iceberg tables did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prism_assets.domain.iceberg_commit import IcebergCommit
from prism_assets.domain.problems import Problem
from prism_assets.domain.words import counted
from prism_assets.metadata.leases import Holder, in_brackets


@dataclass(frozen=True, kw_only=True)
class IcebergTableReport:
    """What was done about one table.

    `created` if the table was made or registered; `waiting` is why nothing was done though something may be due;
    `tag_bytes` are those of data files that only tagged snapshots list, told where it was optimized and has tags;
    `dropped` if it was taken out of the catalog, as its table file names no Iceberg any more.
    """

    table: str
    table_id: int
    identifier: str = ""
    created: bool = False
    dropped: bool = False
    commit: IcebergCommit | None = None
    metadata_location: str | None = None
    snapshot_id: int | None = None
    snapshots: int = 0
    tag_bytes: int | None = None
    restored: bool = False
    waiting: str | None = None
    skipped: bool = False
    holder: Holder | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def skip_reason(self) -> str:
        """Why a table was skipped, and who has it."""
        return f"another worker publishes it{in_brackets(self.holder)}; nothing was done"

    @property
    def lines(self) -> tuple[str, ...]:
        """What was done, for people."""
        said = []
        if self.created:
            said.append(f"is in the catalog as {self.identifier}")
        if self.dropped:
            said.append("is no longer in the catalog; its objects stay")
        if self.restored:
            said.append("what others had committed was taken back")
        if self.commit:
            said.append(str(self.commit))
        if self.tag_bytes is not None:
            said.append(tags_sentence(self.tag_bytes))
        if self.waiting:
            said.append(self.waiting)
        if self.skipped:
            said.append(self.skip_reason)
        return tuple(said)

    @property
    def changed(self) -> bool:
        """Whether anything was changed in the catalog."""
        return self.created or self.dropped or self.commit is not None


@dataclass(frozen=True, kw_only=True)
class IcebergReport:
    """What was done about all tables that are published as Iceberg."""

    tables: tuple[IcebergTableReport, ...]
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether anything was changed in the catalog."""
        return any(table.changed for table in self.tables)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong and what was left undone, one sentence each; days of one reason share one."""
        lines = (line for table in self.tables for line in problem_lines(table.table, table.problems))
        return (*lines, *self.skipped)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The tables that another worker was at, one sentence each."""
        return tuple(f"{table.table}: {table.skip_reason}; repeat" for table in self.tables if table.skipped)


def tags_sentence(tag_bytes: int) -> str:
    """What tags cost."""
    return f"tags hold {tag_bytes / 1e6:,.1f} MB of data files that no other snapshot lists"


def problem_lines(table: str, found: Iterable[Problem]) -> list[str]:
    """What is wrong with a table, one sentence each; days of one reason share one."""
    by_reason: dict[str, list[Problem]] = {}
    for problem in found:
        by_reason.setdefault(problem.reason, []).append(problem)
    lines = []
    for reason, problems in by_reason.items():
        more = f" and {counted(len(problems) - 1, 'more day')}" if len(problems) > 1 else ""
        where = f" {problems[0].date}{more}" if problems[0].date else ""
        lines.append(f"{table}{where}: {reason}")
    return lines
