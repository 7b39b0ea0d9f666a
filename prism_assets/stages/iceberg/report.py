"""Results of publishing Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prism_assets.domain.iceberg.commit import IcebergCommit
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.metadata.leases import Holder, in_brackets


@dataclass(frozen=True, kw_only=True)
class IcebergTableReport:
    """The result for one table."""

    table: str
    table_id: int
    identifier: str = ""
    created: bool = False
    """The table was created or registered."""
    dropped: bool = False
    """The catalog no longer has the table, because the table file no longer has `iceberg:`."""
    commit: IcebergCommit | None = None
    metadata_location: str | None = None
    snapshot_id: int | None = None
    snapshots: int = 0
    tag_bytes: int | None = None
    """Bytes of data files listed only by tagged snapshots. Set by an optimizing run."""
    restored: bool = False
    waiting: str | None = None
    """Why nothing was done although something may be due."""
    skipped: bool = False
    holder: Holder | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def skip_reason(self) -> str:
        """Why the table was skipped, with the holder."""
        return f"another worker publishes it{in_brackets(self.holder)}; nothing was done"

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes, for people."""
        lines = []
        if self.created:
            lines.append(f"is in the catalog as {self.identifier}")
        if self.dropped:
            lines.append("is no longer in the catalog; its objects stay")
        if self.restored:
            lines.append("what others had committed was taken back")
        if self.commit:
            lines.append(str(self.commit))
        if self.tag_bytes is not None:
            lines.append(tags_sentence(self.tag_bytes))
        if self.waiting:
            lines.append(self.waiting)
        if self.skipped:
            lines.append(self.skip_reason)
        return tuple(lines)

    @property
    def changed(self) -> bool:
        """Whether the catalog was changed."""
        return self.created or self.dropped or self.commit is not None


@dataclass(frozen=True, kw_only=True)
class IcebergReport:
    """The result for all Iceberg tables."""

    tables: tuple[IcebergTableReport, ...]
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the catalog was changed."""
        return any(table.changed for table in self.tables)

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems and skipped tables, one sentence each. Days with the same reason share a sentence."""
        lines = (line for table in self.tables for line in problem_lines(table.table, table.problems))
        return (*lines, *self.skipped)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Tables held by another worker, one sentence each."""
        return tuple(f"{table.table}: {table.skip_reason}; repeat" for table in self.tables if table.skipped)


def tags_sentence(tag_bytes: int) -> str:
    """Returns the cost of tags as a sentence."""
    return f"tags hold {tag_bytes / 1e6:,.1f} MB of data files that no other snapshot lists"


def problem_lines(table: str, found: Iterable[Problem]) -> list[str]:
    """Returns the problems of a table, one sentence each. Days with the same reason share a sentence."""
    by_reason: dict[str, list[Problem]] = {}
    for problem in found:
        by_reason.setdefault(problem.reason, []).append(problem)
    lines = []
    for reason, problems in by_reason.items():
        more = f" and {counted(len(problems) - 1, 'more day')}" if len(problems) > 1 else ""
        where = f" {problems[0].date}{more}" if problems[0].date else ""
        lines.append(f"{table}{where}: {reason}")
    return lines
