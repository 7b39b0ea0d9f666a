"""The result or the preview of a replay: one value for the terminal, JSON and tests."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.text import counted
from prism_assets.metadata.intake.replays import LinesLeft
from prism_assets.stages.rebuild.report import RebuildPlan, RebuildReport
from prism_assets.stages.stream.report import StreamReport


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """Objects restarted and days rebuilt by a replay or planned by its preview, and the lines left in quarantine."""

    table: str
    version: int
    objects: int
    """Objects without rows, restarted."""
    lines: int
    with_rows: int
    """Objects left to rebuilds of their days."""
    lines_with_rows: int
    missing: tuple[str, ...]
    """Objects deleted or changed since their conversion, and therefore not restarted."""
    erased: int = 0
    """Objects left alone because some of their lines were erased."""
    lines_of_erased: int = 0
    """Lines in quarantine of these objects."""
    earlier_division: int = 0
    """Objects left alone because the tables of their prefix divided them by earlier routes or another format."""
    lines_of_earlier_division: int = 0
    """Lines in quarantine of these objects."""
    is_folded: bool = False
    """The table is a log of changes, so no day is rebuilt."""
    dry_run: bool = False
    days: tuple[RebuildPlan, ...] = ()
    """Plans of days: of a preview all, of a run those it could not rebuild."""
    streamed: StreamReport | None = None
    rebuilt: tuple[RebuildReport, ...] = ()
    """Results of the other days."""
    rows_added: int = 0
    """Difference in rows of all these objects."""
    left: tuple[LinesLeft, ...] = ()

    @property
    def lines_left(self) -> int:
        """Lines now in quarantine."""
        return sum(item.lines for item in self.left)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The results, a line each."""
        sentences = []
        if self.objects or not self.with_rows:
            sentences.append(self._begun())
        if self.with_rows:
            sentences.append(self._with_rows())
        if self.erased:
            sentences.append(self._erased())
        if self.earlier_division:
            sentences.append(self._earlier_division())
        for report in self.rebuilt:
            sentences += [str(day) for day in report.days if not day.skipped]
            sentences += [f"{day.date}: {url} is gone" for day in report.days for url in day.missing]
        sentences += map(str, self.days)
        if not self.dry_run and (self.objects or self.with_rows):
            sentences.append(self._outcome())
        return tuple(sentences)

    @property
    def errors(self) -> tuple[str, ...]:
        """Objects that cannot be replayed, and errors, one sentence each."""
        gone = [f"{self.table}: {url} is gone, or is no longer what was converted" for url in self.missing]
        failed = [error for report in self.rebuilt for error in report.errors]
        return (*gone, *(self.streamed.errors if self.streamed else ()), *failed)

    def _begun(self) -> str:
        if not self.objects:
            return f"{self.table}: no object to replay under version {self.version} of the definition"
        what = f"{counted(self.objects, 'object')} with {counted(self.lines, 'line')} in quarantine"
        if self.dry_run:
            return f"{self.table}: convert {what} again, under version {self.version} of the definition"
        return f"{self.table}: {what} converted again, under version {self.version} of the definition"

    def _with_rows(self) -> str:
        has = "has" if self.with_rows == 1 else "have"
        what = (
            f"{self.table}: {counted(self.with_rows, 'object')} with {counted(self.lines_with_rows, 'line')} in "
            f"quarantine {has} rows, too"
        )
        if self.is_folded:
            return f"{what}, and stay: changes are folded into records once; send the lines again, as new objects"
        if self.dry_run:
            return f"{what}: rebuild their days, and then those that their lines turn out to be of"
        return f"{what}: their days are rebuilt, and those that their lines turned out to be of"

    def _erased(self) -> str:
        what = f"{counted(self.erased, 'object')} with {counted(self.lines_of_erased, 'line')} in quarantine"
        stay = "stays" if self.erased == 1 else "stay"
        return f"{self.table}: {what} {stay}: other lines were erased, or may have been, and which is not recorded"

    def _earlier_division(self) -> str:
        lines = counted(self.lines_of_earlier_division, "line")
        what = f"{counted(self.earlier_division, 'object')} with {lines} in quarantine"
        stay = "stays: it was" if self.earlier_division == 1 else "stay: they were"
        return (
            f"{self.table}: {what} {stay} divided by earlier routes or another format; rebuild the days of such "
            "objects in all tables of their prefix"
        )

    def _outcome(self) -> str:
        rows = f"{counted(abs(self.rows_added), 'row')} {'less' if self.rows_added < 0 else 'more'}"
        if not self.lines_left:
            return f"{self.table}: {rows} of these objects, and no line of them is in quarantine now"
        reasons = ", ".join(f"{item.lines:,} for {item.reason}" for item in self.left)
        lines = counted(self.lines_left, "line of them is", "lines of them are")
        return f"{self.table}: {rows} of these objects, and {lines} in quarantine now: {reasons}"
