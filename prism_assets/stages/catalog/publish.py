"""Defines a table in the catalog and publishes its partitions. All differences are planned first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from prism_assets.domain.days.partitions import Partition, current_publication
from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.domain.names import TableName
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import catalog_state, partitions, publication_intents, publications
from prism_assets.metadata.days.catalog_state import CatalogState
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.tables import former_names
from prism_assets.stages.catalog.calls import FencedCalls
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
    """Differences between the catalog and its intended state."""

    differs: bool
    """The table itself differs."""
    is_full: bool
    """All partitions were compared, not only those lagging in PostgreSQL."""
    publications: tuple[PublicationPlan, ...]
    outdated: frozenset[date]
    """Days whose location differs from the record, or published regardless by `republish`."""
    withdrawals: tuple[Partition, ...] = ()
    """Expired days in the catalog, by the record or by a comparison."""
    removals: tuple[TableName, ...] = ()
    """Former names to remove."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the catalog is as intended."""
        return not (self.differs or self.publications or self.withdrawals or self.removals)


@dataclass(frozen=True, kw_only=True)
class PublishReport:
    """Changes to the catalog of one publisher, and problems."""

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
    context: StageContext,
    state: CatalogState,
    pending: Sequence[Partition],
    *,
    republish: bool,
    is_defined: bool = False,
) -> PublishPlan:
    """Compares and plans; changes nothing. `pending` are the candidates of this run. `republish` publishes every
    partition. `is_defined` if this run has just seen the table in the catalog by this definition.

    All partitions are compared if the table differs, if a publication has no known end, and periodically. The periodic
    one covers a process that stands still between its last check of the lease and its call, longer than any call takes,
    and dies before it adds a new note.
    """
    table = state.definition
    if table.version < state.defined_version:
        raise InvariantBroken(
            f"version {table.version} of its definition is in force, and the catalog shows version "
            f"{state.defined_version}: nothing was published, as that would take back columns"
        )
    in_doubt = republish or state.comparison_due is not None
    differs = (in_doubt or not is_defined) and context.publisher.differs(table)
    is_full = in_doubt or differs
    found = pending
    if is_full:
        with context.database.begin() as connection:
            found = partitions.load_table_partitions(connection, table.table_id)
            found = publications.as_shown_by(connection, state.publisher, found)
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
        removals=state.ended_names,
        withdrawals=tuple(item for item in found if item.expired and (item.is_published or item.date in lingering)),
    )


def _outdated(context: StageContext, table: TableDefinition, found: Sequence[Partition]) -> frozenset[date]:
    shown = {item.date: publication for item in found if (publication := current_publication(item))}
    return context.publisher.outdated(table, shown)


def _lingering(context: StageContext, table: TableDefinition, found: Sequence[Partition]) -> frozenset[date]:
    """Returns expired days the catalog shows after their removal, because an earlier call took effect late."""
    gone = [item.date for item in found if item.expired and not item.is_published]
    return frozenset(context.publisher.shown_locations(table, gone)) if gone else frozenset()


def publish_table(
    context: StageContext, lease: Lease, state: CatalogState, plan: PublishPlan, now: datetime
) -> PublishReport:
    """Defines the table, publishes its unswitched, then its switched partitions, and removes expired ones.

    A dropped field at the end of a struct leaves the table last, after all partitions.
    A note is added before the catalog is touched, and removed after success. A run that dies, loses its lease or misses
    the end of a call leaves the note. The next runs then compare everything while a call of it may take effect, and
    once afterwards. Each step is fenced by the lease. A death before the end causes one more comparison, without
    changes.
    """
    table = state.definition
    if plan.changes_nothing:
        if plan.is_full or state.defined_version != table.version:
            _record_end(context, lease, state, plan, None, now)
        return PublishReport()
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        if plan.is_full:  # The run's own note replaces expired ones, so that notes do not pile up.
            publication_intents.remove_expired(connection, table.table_id, state.publisher, state.time)
        intent_id = publication_intents.add_intent(connection, lease, context.worker, state.publisher)
    failpoint("catalog.after_begin")
    calls = FencedCalls(context, lease, intent_id)
    # A struct of the table must not be shorter than that of a day: some readers match their fields by place.
    first = replace(table, whole_structs=plan.differs and table.hides_dropped_fields)
    defined: str | None = None
    done: list[PublishedPartition | HeldBack | Problem | date] = []
    removed: list[str] = []
    try:
        if plan.is_full:
            defined = context.publisher.define(first, calls)
        failpoint("catalog.after_define")
        for switched in (False, True):
            chosen = [item for item in plan.publications if item.partition.switched is switched]
            for item in publish_partitions(context, table, chosen, lease, calls, now, is_compared=plan.is_full):
                done.append(item)
        for gone in withdraw_partitions(context, table, plan.withdrawals, lease, calls, now):
            done.append(gone)
        for name in plan.removals:
            _remove_name(context, table, name, lease, calls)
            removed.append(str(name))
        left = {item.date for item in done if isinstance(item, Problem | HeldBack)}
        if plan.outdated.isdisjoint(left):
            if first.whole_structs:
                defined = context.publisher.define(table, calls) or defined
            _record_end(context, lease, state, plan, intent_id, now)
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


def end_table(context: StageContext, lease: Lease, state: CatalogState) -> PublishReport:
    """Removes a table from a catalog its file no longer asks for, under each of its names.

    While an earlier call may still show it again, the next runs repeat the removal. A death after the catalog's call
    leaves a removed table on record, and the next run removes it again. Until the removal is recorded, objects its
    readers need are kept.
    """
    table = state.definition
    removed: list[str] = []
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        publication_intents.remove_expired(connection, table.table_id, state.publisher, state.time)
        intent_id = publication_intents.add_intent(connection, lease, context.worker, state.publisher)
    failpoint("catalog.after_begin_end")
    calls = FencedCalls(context, lease, intent_id)
    try:
        names = (*table.former, *state.ended_names, table.name)
        for name in names:
            context.publisher.remove(table, name, calls)
        failpoint("catalog.after_remove_table")
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            publication_intents.remove_intent(connection, intent_id)
            if catalog_state.end(connection, table.table_id, state.publisher):
                former_names.end_removed_names(connection, table.table_id)
                removed += [str(name) for name in names]
            failpoint("catalog.in_remove_table")
        failpoint("catalog.after_end_table")
    except PrismError as error:
        calls.break_off()
        return PublishReport(removed=tuple(removed), problems=(Problem.of(error, str(table.name)),))
    return PublishReport(removed=tuple(removed))


def _remove_name(
    context: StageContext, table: TableDefinition, name: TableName, lease: Lease, calls: FencedCalls
) -> None:
    """Removes a former name from the catalog. After a death behind the call the next run removes it again."""
    context.publisher.remove(table, name, calls)
    failpoint("catalog.after_remove")
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        former_names.record_removed_name(connection, table.table_id, name, context.publisher.name)
        failpoint("catalog.in_remove")


def _record_end(
    context: StageContext, lease: Lease, state: CatalogState, plan: PublishPlan, intent_id: int | None, now: datetime
) -> None:
    """Records that the catalog matches the record, and removes the intents this settles.

    If a table differs without a new definition, or after a run without a known end, readers saw another definition than
    recorded.

    One transaction: a death in it leaves the intents, and the next run compares once more.
    """
    table, due = state.definition, state.comparison_due
    was_other = plan.differs and (table.version == state.defined_version or bool(due and due.intents))
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        catalog_state.record_definition(connection, state, now, was_other=was_other)
        if intent_id is not None:
            publication_intents.remove_intent(connection, intent_id)
        if plan.is_full:
            publication_intents.remove_expired(connection, table.table_id, state.publisher, state.time)
            catalog_state.record_comparison(connection, table.table_id, state.publisher, state.time)
        failpoint("catalog.in_end")
    failpoint("catalog.after_end")
