"""What PostgreSQL alone can tell: each rule is one statement over all tables, and a sentence for what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from prism_assets.domain.names import TableName
from prism_assets.domain.words import counted
from prism_assets.metadata import abandoned_uploads, clock, damage, gc_log
from prism_assets.metadata.damage import Damage
from prism_assets.metadata.tables import load_definitions
from prism_assets.metadata.unread_objects import load_unread
from prism_assets.stages.context import StageContext
from prism_assets.stages.doctor.findings import Finding
from prism_assets.stages.erase.report import find_erasures
from prism_assets.stages.iceberg.waits import find_iceberg_waits
from prism_assets.stages.record_faults import load_record_faults
from prism_assets.stages.silent_streams import find_silent

_REPORT = "Keep all objects, run nothing that deletes, and report it"
_UPGRADE = "Publish the day anew with this version (`prism catalog --republish`), which shows every committed object"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that must never be true. `facts` may name `{count}`, of `what`, one or many, and `{example}`."""

    invariant: str
    name: str
    statement: str
    facts: str
    advice: str
    what: tuple[str, str] = ("", "")

    def finding(self, found: Damage, names: Mapping[int, TableName]) -> Finding:
        """What is said about one row of the statement's answer."""
        return Finding(
            invariant=self.invariant,
            name=self.name,
            table=None if found.table_id is None else str(names[found.table_id]),
            date=found.date,
            facts=self.facts.format(count=counted(found.count, *self.what), example=found.example),
            advice=self.advice,
        )


_EVERYWHERE = (
    Rule(
        invariant="I3",
        name="live_behind_close",
        statement=damage.LIVE_BEHIND_CLOSE,
        what=("live small object", "live small objects"),
        facts="{count} came behind the close, and readers who saw them lose them with the switch: {example}",
        advice=_REPORT,
    ),
    Rule(
        invariant="I5",
        name="broken_chain",
        statement=damage.BROKEN_CHAIN,
        facts="its ranges are no gapless chain: {example}",
        advice=_REPORT,
    ),
    Rule(
        invariant="I10",
        name="never_merged",
        statement=damage.NEVER_MERGED,
        what=("small object of a closed day is", "small objects of a closed day are"),
        facts="{count} not merged, and no merge is scheduled: {example}",
        advice="Run `prism merge --all` for the table and day",
    ),
)
_WITHOUT_RANGES = Rule(
    invariant="I5",
    name="desired_without_ranges",
    statement=damage.DESIRED_WITHOUT_RANGES,
    facts="{example}",
    advice=_REPORT,
)
_BEYOND_DESIRED = Rule(
    invariant="I4",
    name="current_beyond_desired",
    statement=damage.CURRENT_BEYOND_DESIRED,
    facts="the catalog is recorded to show ranges that nobody asked for: {example}",
    advice="Run `prism doctor --deep` to see what readers miss, then report it",
)
_OF_PUBLISHED_DESIGN = (
    _WITHOUT_RANGES,
    _BEYOND_DESIRED,
    Rule(
        invariant="I1",
        name="late_in_range",
        statement=damage.LATE_IN_RANGE,
        what=(
            "small object has an id that a merge had passed before it came, and is",
            "small objects have ids that a merge had passed before they came, and are",
        ),
        facts="{count} in no merged object: {example}",
        advice=_UPGRADE,
    ),
)
_OURS = (
    dataclasses.replace(_WITHOUT_RANGES, statement=damage.LOG_DESIRED_WITHOUT_RANGES),
    dataclasses.replace(_BEYOND_DESIRED, statement=damage.SHOWN_BEYOND_DESIRED),
    Rule(
        invariant="I1",
        name="not_to_be_published",
        statement=damage.NOT_TO_BE_PUBLISHED,
        facts="committed rows are not shown, and no catalog run will look: {example}",
        advice="Run `prism catalog --republish` for the table, and report it",
    ),
    Rule(
        invariant="I9",
        name="unbalanced",
        statement=damage.UNBALANCED,
        what=("staging object does", "staging objects do"),
        facts="{count} not balance: {example}",
        advice=_REPORT,
    ),
    Rule(
        invariant="I2",
        name="committed_and_unfinished",
        statement=damage.COMMITTED_AND_UNFINISHED,
        what=(
            "small object is committed though its staging object is not done, and may come again",
            "small objects are committed though their staging objects are not done, and may come again",
        ),
        facts="{count}: {example}",
        advice=_REPORT,
    ),
    Rule(
        invariant="I1",
        name="last_object",
        statement=damage.LAST_OBJECT,
        facts="committed rows are not published: {example}",
        advice=_REPORT,
    ),
    Rule(
        invariant="I5",
        name="unequal_ranges",
        statement=damage.UNEQUAL_RANGES,
        what=("merged range is not equal to what it covers", "merged ranges are not equal to what they cover"),
        facts="{count}: {example}",
        advice="Readers are not switched to them. " + _REPORT,
    ),
    Rule(
        invariant="I4",
        name="published_beyond",
        statement=damage.PUBLISHED_BEYOND,
        facts="the catalog is recorded to show objects that are not committed: {example}",
        advice="Restored from a backup? Then `prism catalog --republish`; otherwise report it",
    ),
    Rule(
        invariant="I5",
        name="no_certificate",
        statement=damage.NO_CERTIFICATE,
        facts="it is switched without a certificate",
        advice="Compare it with `prism doctor --deep` before anything of it is deleted",
    ),
    Rule(
        invariant="I3",
        name="mark_beyond_batches",
        statement=damage.MARK_BEYOND_BATCHES,
        facts="its closing mark is of a batch that is not known, so that later rows count as earlier: {example}",
        advice="A failover lost batches: raise the sequence of prism_stream_batches above the mark",
    ),
    Rule(
        invariant="I8",
        name="ids_come_again",
        statement=damage.IDS_COME_AGAIN,
        facts="ids will be given out twice: {example}",
        advice="A failover or a restore left the sequence behind: set it above the greatest id",
    ),
    Rule(
        invariant="I10",
        name="held_by_nobody",
        statement=damage.HELD_BY_NOBODY,
        what=("staging object is", "staging objects are"),
        facts="{count} claimed by batches that do not run, and nobody gives back what they claimed: {example}",
        advice="Set their state to pending, and report it",
    ),
    Rule(
        invariant="I10",
        name="parked_merge",
        statement=damage.PARKED_MERGE,
        facts="its merge waits for somebody, {example}",
        advice="Mend the cause, then `prism merge --all` for the table and day",
    ),
)
RULES = (*_EVERYWHERE, *_OURS)
RULES_OF_PUBLISHED_DESIGN = (*_EVERYWHERE, *_OF_PUBLISHED_DESIGN)


def look_at_records(context: StageContext, names: Mapping[int, TableName], *, published_design: bool) -> list[Finding]:
    """All rules, each in a transaction of its own: a long one would keep vacuum waiting."""
    found = []
    for rule in RULES_OF_PUBLISHED_DESIGN if published_design else RULES:
        with context.database.begin() as connection:
            damage.begin_reading(connection)
            found += [rule.finding(item, names) for item in damage.find_damage(connection, rule.statement, names)]
    if published_design:
        return found
    for look in (_unread, _silent, _unremoved, _undeleted, _unfolded, _unproved, _iceberg_waits):
        found += look(context, names)
    return found


def _unfolded(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        return [
            Finding(
                invariant="I10",
                name="records_wait",
                table=str(table.name),
                date=None,
                facts=fault,
                advice="Folds go on without it meanwhile, and with it when it can be read",
            )
            for table in load_definitions(connection)
            if table.join and table.table_id in names
            for fault in load_record_faults(connection, table)
        ]


def _unproved(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        tables = [table for table in load_definitions(connection) if table.table_id in names]
        return [
            Finding(
                invariant="I10",
                name="unproved_erasure",
                table=erasure.table,
                date=None,
                facts=erasure.wait,
                advice="See to what holds it, then run `prism erase --continue`",
            )
            for erasure in find_erasures(context, connection, tables, open_only=True)
            if erasure.for_a_person
        ]


def _iceberg_waits(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        tables = [table for table in load_definitions(connection) if table.table_id in names]
        return [
            Finding(
                invariant="I10",
                name="iceberg_waits",
                table=wait.table,
                date=None,
                facts=wait.reason,
                advice="`prism iceberg status` tells how the table is",
            )
            for wait in find_iceberg_waits(connection, tables)
            if wait.for_a_person
        ]


def _unread(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        found = load_unread(connection, list(names))
    return [
        Finding(
            invariant="I10",
            name="unread_objects",
            table=str(names[item.table_id]),
            date=None,
            facts=(
                f"{counted(item.objects, 'object is', 'objects are')} not read ({item.why.value}): "
                f"{'; '.join(item.examples)}"
            ),
            advice=f"{item.objects} {item.why.remedy}",
        )
        for item in found
    ]


def _silent(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        found = find_silent(connection, list(names), clock.database_time(connection))
    return [
        Finding(
            invariant="I10",
            name="silent_stream",
            table=str(names[item.table_id]),
            date=None,
            facts=item.sentence,
            advice="`prism discover` looks again",
        )
        for item in found
        if item.for_a_person
    ]


def _unremoved(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        found = abandoned_uploads.count_overdue(connection)
    return [
        Finding(
            invariant="I2",
            name="unremoved_uploads",
            table=str(names[table_id]),
            date=None,
            facts=(
                f"what was uploaded for {counted(count, 'object that was', 'objects that were')} given up is not "
                "removed for over an hour"
            ),
            advice="Run `prism stream`; if it stays, the role lacks the right to delete",
        )
        for table_id, count in found.items()
        if table_id in names
    ]


def _undeleted(context: StageContext, names: Mapping[int, TableName]) -> list[Finding]:
    with context.database.begin() as connection:
        damage.begin_reading(connection)
        found = gc_log.count_overdue(connection)
    return [
        Finding(
            invariant="I10",
            name="undeleted_garbage",
            table=str(names[table_id]),
            date=None,
            facts=(
                f"{counted(count, 'object')} that a garbage collection was about to delete did not go for over two days"
            ),
            advice="Run `prism gc`; if it stays, the role lacks the right to delete",
        )
        for table_id, count in found.items()
        if table_id in names
    ]
