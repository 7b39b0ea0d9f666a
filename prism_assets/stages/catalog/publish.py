"""Defines a table in the catalog and publishes its partitions: what differs is planned first, then carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.domain.names import TableName
from prism_assets.domain.partitions import Partition, current_publication
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import catalog_state, former_names, leases, partitions, publication_notes, publications
from prism_assets.metadata.catalog_state import CatalogState
from prism_assets.metadata.leases import Lease
from prism_assets.stages.catalog.calls import NotedCalls
from prism_assets.stages.catalog.publications import (
    HeldBack,
    PublicationPlan,
    PublishedPartition,
    plan_publications,
    publish_partitions,
    withdraw_partitions,
)
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class PublishPlan:
    """What the catalog shows otherwise than it should.

    `differs` if the table itself does; `is_full` if all partitions were compared, and not only those that PostgreSQL
    knows to be behind. `outdated` are the days that the catalog shows otherwise than recorded, or that are published
    whatever it shows. `withdrawals` are expired days that it shows, as far as PostgreSQL knows, or that it was seen to,
    `removals` names of before that it is to forget.
    """

    differs: bool
    is_full: bool
    publications: tuple[PublicationPlan, ...]
    outdated: frozenset[date]
    withdrawals: tuple[Partition, ...] = ()
    removals: tuple[TableName, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether the catalog shows what it should."""
        return not (self.differs or self.publications or self.withdrawals or self.removals)


@dataclass(frozen=True, kw_only=True)
class PublishReport:
    """What was defined and published, and what is wrong."""

    defined: str | None = None
    published: tuple[PublishedPartition, ...] = ()
    withdrawn: tuple[date, ...] = ()
    removed: tuple[str, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the catalog was changed."""
        return bool(self.defined or self.published or self.withdrawn or self.removed)


def plan_publish(
    context: StageContext, known: CatalogState, pending: Sequence[Partition], *, republish: bool
) -> PublishPlan:
    """Compares; changes nothing. With `republish` every partition is published, whatever the catalog shows.

    `pending` are the partitions that PostgreSQL knows a catalog run may have to do something about.

    All partitions are compared when the table differs, when a publication was not seen to end, and once in a while: a
    process may stand still for longer than any call takes, between its last look at its lease and its call, and die
    before it has noted that call anew.
    """
    table = known.definition
    if table.version < known.defined_version:
        raise InvariantBroken(
            f"version {table.version} of its definition is in force, and the catalog shows version "
            f"{known.defined_version}: nothing was published, as that would take back columns"
        )
    differs = context.publisher.differs(table)
    is_full = republish or differs or known.comparison_due is not None
    found = pending
    if is_full:
        with context.database.begin() as connection:
            found = partitions.load_table_partitions(connection, table.table_id)
            found = publications.as_shown_by(connection, known.publisher, found)
    if republish:
        outdated = frozenset(item.date for item in found if not (item.expired or item.has_nothing_to_show))
    else:
        outdated = _outdated(context, table, found) if is_full else frozenset()
    lingering = _lingering(context, table, found) if is_full and not differs else frozenset()
    return PublishPlan(
        differs=differs,
        is_full=is_full,
        publications=tuple(plan_publications(found, outdated)),
        outdated=outdated | lingering,
        removals=known.ended_names,
        withdrawals=tuple(item for item in found if item.expired and (item.is_published or item.date in lingering)),
    )


def _outdated(context: StageContext, table: TableDefinition, found: Sequence[Partition]) -> frozenset[date]:
    shown = {item.date: publication for item in found if (publication := current_publication(item))}
    return context.publisher.outdated(table, shown)


def _lingering(context: StageContext, table: TableDefinition, found: Sequence[Partition]) -> frozenset[date]:
    """Expired days that the catalog shows although they were taken out of it: a call of before landed late."""
    gone = [item.date for item in found if item.expired and not item.is_published]
    return frozenset(context.publisher.shown_locations(table, gone)) if gone else frozenset()


def publish_table(
    context: StageContext, lease: Lease, known: CatalogState, plan: PublishPlan, now: datetime
) -> PublishReport:
    """Defines the table, publishes its unswitched partitions, then its switched ones, and takes out expired ones.

    That the catalog is about to be touched is noted before, and taken back when all went well. A run that died, lost
    its lease or never heard of the end of a call leaves the note, and the next runs compare everything: as long as a
    call of it may land, and once after. Each step is fenced by the lease; a death before the end has the table
    compared, which then changes nothing.
    """
    table = known.definition
    if plan.changes_nothing:
        if plan.is_full or known.defined_version != table.version:
            _record_end(context, lease, known, plan, None, now)
        return PublishReport()
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        if plan.is_full:  # The run's own note stands for those that are over, so that they do not grow many.
            publication_notes.remove_expired(connection, table.table_id, known.publisher, known.time)
        note_id = publication_notes.add_note(connection, lease, context.worker, known.publisher)
    failpoint("catalog.after_begin")
    calls = NotedCalls(context, lease, note_id)
    defined: str | None = None
    done: list[PublishedPartition | HeldBack | Problem | date] = []
    removed: list[str] = []
    try:
        defined = context.publisher.define(table, calls)
        failpoint("catalog.after_define")
        for switched in (False, True):
            chosen = [item for item in plan.publications if item.partition.switched is switched]
            for item in publish_partitions(context, table, chosen, lease, calls, now):
                done.append(item)
        for gone in withdraw_partitions(context, table, plan.withdrawals, lease, calls, now):
            done.append(gone)
        for name in plan.removals:
            _remove_name(context, table, name, lease, calls)
            removed.append(str(name))
        left = {item.date for item in done if isinstance(item, Problem | HeldBack)}
        if plan.outdated.isdisjoint(left):
            _record_end(context, lease, known, plan, note_id, now)
    except PrismError as error:
        done.append(Problem.of(error, str(table.name)))
        calls.break_off()
    return PublishReport(
        defined=defined,
        published=tuple(item for item in done if isinstance(item, PublishedPartition)),
        withdrawn=tuple(item for item in done if isinstance(item, date)),
        removed=tuple(removed),
        held_back=tuple(item for item in done if isinstance(item, HeldBack)),
        problems=tuple(item for item in done if isinstance(item, Problem)),
    )


def end_table(context: StageContext, lease: Lease, known: CatalogState) -> PublishReport:
    """Has a catalog forget a table whose file asks for it no more, under each of its names.

    As long as a call of before may land and show it again, the next runs do the same. A death behind the catalog leaves
    a table on record that is gone: it goes again. Until that is recorded nothing that its readers need is deleted.
    """
    table = known.definition
    removed: list[str] = []
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        publication_notes.remove_expired(connection, table.table_id, known.publisher, known.time)
        note_id = publication_notes.add_note(connection, lease, context.worker, known.publisher)
    failpoint("catalog.after_begin_end")
    calls = NotedCalls(context, lease, note_id)
    try:
        names = (*table.former, *known.ended_names, table.name)
        for name in names:
            context.publisher.remove(table, name, calls)
        failpoint("catalog.after_remove_table")
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            publication_notes.remove_note(connection, note_id)
            if catalog_state.end(connection, table.table_id, known.publisher):
                former_names.end_removed_names(connection, table.table_id)
                removed += [str(name) for name in names]
            failpoint("catalog.in_remove_table")
        failpoint("catalog.after_end_table")
    except PrismError as error:
        calls.break_off()
        return PublishReport(removed=tuple(removed), problems=(Problem.of(error, str(table.name)),))
    return PublishReport(removed=tuple(removed))


def _remove_name(
    context: StageContext, table: TableDefinition, name: TableName, lease: Lease, calls: NotedCalls
) -> None:
    """Has the catalog forget a name of before. A death behind it leaves one on record that is gone: it goes again."""
    context.publisher.remove(table, name, calls)
    failpoint("catalog.after_remove")
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        former_names.record_removed_name(connection, table.table_id, name, context.publisher.name)
        failpoint("catalog.in_remove")


def _record_end(
    context: StageContext, lease: Lease, known: CatalogState, plan: PublishPlan, note_id: int | None, now: datetime
) -> None:
    """Records that the catalog shows what is recorded, and takes back the notes that this makes good.

    A table that differs where nothing new was to be shown, or behind a run that was not seen to end, was shown
    otherwise than recorded.

    One transaction: a death in it leaves the notes, and the next run compares once more.
    """
    table, due = known.definition, known.comparison_due
    was_other = plan.differs and (table.version == known.defined_version or bool(due and due.notes))
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        catalog_state.record_definition(connection, known, now, was_other=was_other)
        if note_id is not None:
            publication_notes.remove_note(connection, note_id)
        if plan.is_full:
            publication_notes.remove_expired(connection, table.table_id, known.publisher, known.time)
            catalog_state.record_comparison(connection, table.table_id, known.publisher, known.time)
        failpoint("catalog.in_end")
    failpoint("catalog.after_end")
