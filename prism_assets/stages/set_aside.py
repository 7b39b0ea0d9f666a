"""Sentences about tables most of whose lines were set aside, by one run or in the last days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.quarantine_advice import describe_mostly_quarantined
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata.quarantine import quarantine_reasons, quarantine_shares
from prism_assets.stages.context import StageContext
from prism_assets.stages.stream.report import StreamReport


def set_aside_by(context: StageContext, report: StreamReport) -> tuple[str, ...]:
    """A sentence about each table of which a run set most lines aside, for the end of its output."""
    if not report.quarantined:
        return ()
    tables = {table.table_id: table for table in context.choose_tables(None)}
    found = (
        describe_mostly_quarantined(tables[item.table_id], item.lines_in, item.reasons)
        for item in report.lines
        if item.table_id in tables
    )
    return tuple(sentence for sentence in found if sentence)


def set_aside_since(
    connection: Connection, tables: Sequence[TableDefinition], since: datetime, when: str
) -> dict[int, str]:
    """A sentence about each table of which most lines were set aside since some time, by its id."""
    ids = [table.table_id for table in tables]
    shares = {item.table_id: item for item in quarantine_shares(connection, ids, since) if item.quarantined}
    reasons = quarantine_reasons(connection, list(shares), since) if shares else {}
    found = {
        table.table_id: describe_mostly_quarantined(
            table, shares[table.table_id].lines_in, reasons.get(table.table_id, ()), when
        )
        for table in tables
        if table.table_id in shares
    }
    return {table_id: sentence for table_id, sentence in found.items() if sentence}
