"""What must never be true of the rows in PostgreSQL: each rule is one statement over all tables, and a finding.

Statements read whole tables, so doctor alone asks them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prism_assets.domain.findings import Finding
from prism_assets.domain.names import TableName
from prism_assets.domain.text import counted
from prism_assets.metadata import invariants
from prism_assets.metadata.invariants import Violation
from prism_assets.metadata.kafka import audit
from prism_assets.stages.context import StageContext

_REPORT = "Keep all objects, run nothing that deletes, and report it"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that must never be true.

    `says` may name `{count}`, of `what`, one or many, and `{example}`; `remedy` may name `{table}` and `{date}`.
    """

    invariant: str
    kind: str
    statement: str
    says: str
    remedy: str
    what: tuple[str, str] = ("", "")

    def finding(self, found: Violation, names: Mapping[int, TableName]) -> Finding:
        """The finding of one row of the statement's answer."""
        table = None if found.table_id is None else str(names[found.table_id])
        return Finding(
            kind=self.kind,
            table=table,
            date=found.date,
            says=self.says.format(count=counted(found.count, *self.what), example=found.example),
            remedy=self.remedy.format(table=table, date=found.date),
            count=found.count,
            invariant=self.invariant,
        )


_EVERYWHERE = (
    Rule(
        invariant="I3",
        kind="live_behind_close",
        statement=invariants.LIVE_BEHIND_CLOSE,
        what=("live small object", "live small objects"),
        says="{count} came after the close, and readers lose these rows at the switch: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I5",
        kind="broken_chain",
        statement=invariants.BROKEN_CHAIN,
        says="its ranges have a gap or an overlap: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I10",
        kind="never_merged",
        statement=invariants.NEVER_MERGED,
        what=("small object of a closed day is", "small objects of a closed day are"),
        says="{count} not merged, and no merge is scheduled: {example}",
        remedy="Run `prism merge --all --table {table} --date {date}`",
    ),
)
_WITHOUT_RANGES = Rule(
    invariant="I5",
    kind="desired_without_ranges",
    statement=invariants.DESIRED_WITHOUT_RANGES,
    says="{example}",
    remedy=_REPORT,
)
_BEYOND_DESIRED = Rule(
    invariant="I4",
    kind="current_beyond_desired",
    statement=invariants.CURRENT_BEYOND_DESIRED,
    says="on record the catalog shows ranges beyond the desired ones: {example}",
    remedy="Run `prism doctor --deep` to see what readers miss, then report it",
)
_OF_PUBLISHED_DESIGN = (
    _WITHOUT_RANGES,
    _BEYOND_DESIRED,
    Rule(
        invariant="I1",
        kind="late_in_range",
        statement=invariants.LATE_IN_RANGE,
        what=(
            "small object came after a merge had passed its id, and is",
            "small objects came after merges had passed their ids, and are",
        ),
        says="{count} in no merged object: {example}",
        remedy="`prism catalog --republish` publishes the day with this version, which shows every committed object",
    ),
)
_OURS = (
    dataclasses.replace(_WITHOUT_RANGES, statement=invariants.LOG_DESIRED_WITHOUT_RANGES),
    dataclasses.replace(_BEYOND_DESIRED, statement=invariants.SHOWN_BEYOND_DESIRED),
    Rule(
        invariant="I1",
        kind="not_to_be_published",
        statement=invariants.NOT_TO_BE_PUBLISHED,
        says="committed rows are not shown, and no catalog run will look: {example}",
        remedy="Run `prism catalog --republish --table {table}`, and report it",
    ),
    Rule(
        invariant="I9",
        kind="unbalanced",
        statement=invariants.UNBALANCED,
        what=("staging object does", "staging objects do"),
        says="{count} not balance: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I2",
        kind="committed_and_unfinished",
        statement=invariants.COMMITTED_AND_UNFINISHED,
        what=(
            "small object is committed though its staging object is not done, and may come again",
            "small objects are committed though their staging objects are not done, and may come again",
        ),
        says="{count}: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I1",
        kind="last_object",
        statement=invariants.LAST_OBJECT,
        says="committed rows are not published: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I5",
        kind="unequal_ranges",
        statement=invariants.UNEQUAL_RANGES,
        what=("merged range is not equal to what it covers", "merged ranges are not equal to what they cover"),
        says="{count}: {example}",
        remedy="Readers are not switched to them. " + _REPORT,
    ),
    Rule(
        invariant="I4",
        kind="published_beyond",
        statement=invariants.PUBLISHED_BEYOND,
        says="on record the catalog shows uncommitted objects: {example}",
        remedy="Restored from a backup? Then `prism catalog --republish`; otherwise report it",
    ),
    Rule(
        invariant="I5",
        kind="no_certificate",
        statement=invariants.NO_CERTIFICATE,
        says="it is switched without a certificate",
        remedy="Compare it with `prism doctor --deep` before anything of it is deleted",
    ),
    Rule(
        invariant="I3",
        kind="mark_beyond_batches",
        statement=invariants.MARK_BEYOND_BATCHES,
        says="its closing mark names an unknown later batch, so later rows count as earlier ones: {example}",
        remedy="A failover lost batches: raise the sequence of prism_stream_batches above the mark",
    ),
    Rule(
        invariant="I8",
        kind="ids_come_again",
        statement=invariants.IDS_COME_AGAIN,
        says="ids will be given out twice: {example}",
        remedy="A failover or a restore left the sequence behind: set it above the greatest id",
    ),
    Rule(
        invariant="I1",
        kind="unequal_offsets",
        statement=audit.UNEQUAL_OFFSETS,
        what=("partition of a topic does", "partitions of topics do"),
        says="{count} not have each offset up to the position in one range: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I9",
        kind="unequal_records",
        statement=audit.UNEQUAL_RECORDS,
        what=("spool object does", "spool objects do"),
        says="{count} not have a line for each message: {example}",
        remedy=_REPORT,
    ),
    Rule(
        invariant="I10",
        kind="held_by_nobody",
        statement=invariants.HELD_BY_NOBODY,
        what=("staging object is", "staging objects are"),
        says="{count} claimed by batches that no longer run, and nobody returns them: {example}",
        remedy="Set their state to pending, and report it",
    ),
)
RULES = (*_EVERYWHERE, *_OURS)
RULES_OF_PUBLISHED_DESIGN = (*_EVERYWHERE, *_OF_PUBLISHED_DESIGN)


def find_violations(
    context: StageContext, names: Mapping[int, TableName], *, published_design: bool
) -> Iterator[Finding]:
    """Findings of all rules, each in a transaction of its own: a long one would keep vacuum waiting."""
    for rule in RULES_OF_PUBLISHED_DESIGN if published_design else RULES:
        with context.database.begin() as connection:
            invariants.begin_reading(connection)
            found = invariants.find_violations(connection, rule.statement, names)
        yield from (rule.finding(item, names) for item in found)
