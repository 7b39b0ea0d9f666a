"""Tables with mostly quarantined lines, by one run or in the last days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.streams.quarantine_advice import find_mostly_quarantined
from prism_assets.metadata.intake.quarantine import quarantine_reasons, quarantine_shares
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.subject import Look, Subject
from prism_assets.stages.stream.report import StreamReport

_DAYS = 7


def set_aside_by(context: StageContext, report: StreamReport) -> tuple[Finding, ...]:
    """Tables with mostly quarantined lines of one run. The run fails, because only a person makes rows of the lines."""
    if not report.quarantined:
        return ()
    tables = {table.table_id: table for table in context.choose_tables(None)}
    found = (
        find_mostly_quarantined(tables[item.table_id], item.lines_in - item.elsewhere, item.reasons, acts=Acts.PERSON)
        for item in report.lines
        if item.table_id in tables
    )
    return tuple(filter(None, found))


def find_set_aside(look: Look) -> Iterator[Finding]:
    """Tables with mostly quarantined lines of the last days. Time ends the finding, when the lines are old."""
    since = look.now - timedelta(days=_DAYS)
    shares = {item.table_id: item for item in quarantine_shares(look.connection, list(look.names), since)}
    shares = {table_id: item for table_id, item in shares.items() if item.quarantined}
    reasons = quarantine_reasons(look.connection, list(shares), since) if shares else {}
    for table in look.tables:
        if share := shares.get(table.table_id):
            counts = reasons.get(table.table_id, ())
            when = f" of the last {_DAYS} days"
            if found := find_mostly_quarantined(table, share.lines, counts, when, acts=Acts.TIME):
                yield found


SET_ASIDE = Subject(find=find_set_aside)
