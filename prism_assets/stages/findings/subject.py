"""A subject of findings, and the tables to look at."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.erasures.records import HeldErasure
from prism_assets.domain.erasures.rules import Erasure
from prism_assets.domain.findings import Finding
from prism_assets.domain.tables.assets import Asset
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.erasures import erasure_records
from prism_assets.metadata.erasures.erasures import load_erasures
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.files.merge_jobs import JobStatus
from prism_assets.metadata.intake import backlog
from prism_assets.metadata.intake.backlog import StagingCounts
from prism_assets.metadata.intake.stream_scans import ListedStream, load_listed
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at some tables, in one transaction. Subjects share rows."""

    context: StageContext
    connection: Connection
    tables: Sequence[TableDefinition]
    now: datetime.datetime
    day: datetime.date | None = None
    """Only this day is of interest. Subjects may find others."""
    loaded: Sequence[Partition] | None = None
    """All partitions of the tables, or those of the day, where the caller has them."""
    has_drops: bool = True
    """Whether a drop may be under way."""
    for_people: bool = True
    """Off for sensors: nothing is read for sentences alone."""
    whole: bool = False
    """On for doctor: objects of any age are compared."""

    @cached_property
    def names(self) -> Mapping[int, str]:
        """Names of the tables by id."""
        return {table.table_id: str(table.name) for table in self.tables}

    @cached_property
    def partitions(self) -> Sequence[Partition]:
        """The partitions with steps left: all of them, or the candidates of a catalog run."""
        if self.loaded is not None:
            return self.loaded
        return load_candidates(self.connection, self.tables, self.now)

    @cached_property
    def jobs(self) -> Sequence[JobStatus]:
        """The merge jobs of all tables, the running one of a partition first."""
        return merge_jobs.load_status(self.connection)

    @cached_property
    def held(self) -> Mapping[int, tuple[HeldErasure, ...]]:
        """Erasures that keep tables from work, by table."""
        return erasure_records.load_held(self.connection)

    @cached_property
    def erasures(self) -> Sequence[Erasure]:
        """The erasures of the tables without a proof."""
        return load_erasures(self.connection, list(self.names), open_only=True)

    @cached_property
    def listed(self) -> Sequence[ListedStream]:
        """The streams of the tables that were listed at least once."""
        return load_listed(self.connection, list(self.names))

    @cached_property
    def unfinished(self) -> Mapping[int, StagingCounts]:
        """Counts of unfinished staging objects by table, where there are any."""
        return {item.table_id: item for item in backlog.count_unfinished(self.connection)}


FindFindings = Callable[[Look], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class FindingCheck:
    """The asset check of a subject. It fails for a table with findings."""

    name: str
    asset: Asset
    about: str
    passes: str
    """The sentence where nothing is found."""
    fails: Callable[[Finding], bool] = lambda _: True
    """Other findings are told, and fail nothing."""
    is_error: bool = False
    of_topics: bool = False
    """Whether only tables that read topics have the check."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A subject of findings. A new one is a module of this folder and a line of the registry."""

    find: FindFindings
    check: FindingCheck | None = None
    runs: Asset | None = None
    """The asset with the runs that end findings of `Acts.RUN`. The sensor asks with `for_people` off."""
    also_held: bool = False
    """Whether tables without one of their erasures are looked at, too. Nothing else is done with these."""
