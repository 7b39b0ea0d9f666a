"""Replay: quarantined lines that are rows under the definition in force leave the quarantine, and become such.

Objects of which no line is a row yet begin anew, and are converted by the next batch of Stream like any other: by its
rules for late rows, and with all their lines, as those in quarantine may have been blanked. The commit that adds their
rows says anew what is in quarantine of them; until then that stays as it is. A death in between leaves objects that the
next batch reads.

Objects that have rows already are left to a rebuild of their days, which replaces these rows in the same step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.words import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata import replays
from prism_assets.metadata.replays import ReplayCandidate
from prism_assets.stages.context import StageContext
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.run import run_stream

_AT_ONCE = 1_000
_LOOKS = 8


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What was begun anew, or would be, and what is left in quarantine of it when it was converted.

    `with_rows` are objects that have rows of `days` and are left to rebuilds, `missing` those that are gone, or are
    no longer what was converted.
    """

    table: str
    version: int
    objects: int
    lines: int
    with_rows: int
    lines_with_rows: int
    days: tuple[date, ...]
    missing: tuple[str, ...]
    streamed: StreamReport | None = None
    lines_left: int = 0

    @property
    def sentences(self) -> tuple[str, ...]:
        """For people, a line for each thing."""
        said = [self._replayed()]
        if self.with_rows:
            first, last = self.days[0], self.days[-1]
            since = f" --since {first}" if first != last else ""
            said.append(
                f"{counted(self.with_rows, 'object')} with {counted(self.lines_with_rows, 'line')} in quarantine "
                f"{'has' if self.with_rows == 1 else 'have'} rows, too: rebuild their days, `prism rebuild "
                f"{self.table} --date {last}{since}`"
            )
        return tuple(said)

    @property
    def errors(self) -> tuple[str, ...]:
        """What cannot be replayed, one sentence each."""
        gone = [f"{self.table}: {url} is gone, or is no longer what was converted" for url in self.missing]
        return (*gone, *(self.streamed.errors if self.streamed else ()))

    def _replayed(self) -> str:
        if not self.objects:
            return f"{self.table}: no object to replay under version {self.version} of the definition"
        what = f"{counted(self.objects, 'object')} with {counted(self.lines, 'line')} in quarantine"
        if self.streamed is None:
            return f"{self.table}: convert {what} anew, under version {self.version} of the definition"
        return (
            f"{self.table}: {what} converted anew, under version {self.version} of the definition: "
            f"{counted(self.lines_left, 'line is', 'lines are')} in quarantine now"
        )


def run_replay(
    context: StageContext, name: str, *, reasons: Collection[str] | None = None, dry_run: bool = False, now: datetime
) -> ReplayReport:
    """Replays the quarantine of a table, of objects with lines for any of these reasons.

    Repeating it changes nothing: what was converted under the definition in force is left as it is.
    """
    context.check_lake()
    (table,) = context.choose_logs([name])
    begun: list[ReplayCandidate] = []
    others: list[ReplayCandidate] = []
    missing: list[str] = []
    for part in _parts(context, table.table_id, table.version, reasons):
        alone = [item for item in part if not item.days]
        others += [item for item in part if item.days]
        present = _present(context, alone)
        missing += [item.url for item in alone if item not in present]
        if not dry_run and present:
            _begin_anew(context, present, table.version)
        begun += present
    streamed, left = None, 0
    if not dry_run and begun:
        streamed = run_stream(context, now=now, names=[name])
        with context.database.begin() as connection:
            left = replays.count_quarantined(connection, [item.staging_object_id for item in begun])
    return ReplayReport(
        table=name,
        version=table.version,
        objects=len(begun),
        lines=sum(item.lines for item in begun),
        with_rows=len(others),
        lines_with_rows=sum(item.lines for item in others),
        days=tuple(sorted({day for item in others for day in item.days})),
        missing=tuple(missing),
        streamed=streamed,
        lines_left=left,
    )


def _parts(
    context: StageContext, table_id: int, version: int, reasons: Collection[str] | None
) -> Iterator[list[ReplayCandidate]]:
    above = 0
    while True:
        with context.database.begin() as connection:
            part = replays.load_candidates(connection, table_id, version, reasons, above, _AT_ONCE)
        if not part:
            return
        above = part[-1].staging_object_id
        yield part


def _present(context: StageContext, items: Sequence[ReplayCandidate]) -> list[ReplayCandidate]:
    """Those that are there as they were converted: one that is not would be given up, and its ledger with it."""

    def is_there(item: ReplayCandidate) -> bool:
        try:
            found = context.stores.head(item.bucket, item.key)
        except ObjectMissing:
            return False
        return found.content_length == item.content_length and item.etag in (None, found.etag)

    with ThreadPoolExecutor(_LOOKS) as pool:
        return [item for item, there in zip(items, pool.map(is_there, items), strict=True) if there]


def _begin_anew(context: StageContext, items: Sequence[ReplayCandidate], version: int) -> None:
    """One transaction: a death in it begins nothing; after it, the next batch reads them."""
    with context.database.begin() as connection:
        replays.begin_anew(connection, [item.staging_object_id for item in items], version)
        failpoint("replay.in_begin")
    failpoint("replay.after_begin")
