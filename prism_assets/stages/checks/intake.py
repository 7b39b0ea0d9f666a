"""Checks of the fate of objects, lines and fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from prism_assets.domain.days.lengths import CUT, TOO_LONG, length_warnings
from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.streams.quarantine_advice import advice_of, are_mostly_quarantined
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import SeenField, full_contract, still_undefined
from prism_assets.domain.text import counted
from prism_assets.metadata.intake import ledgers
from prism_assets.metadata.intake.ledgers import Balance
from prism_assets.metadata.intake.quarantine import (
    QuarantineShare,
    UnfitValues,
    quarantine_reasons,
    quarantine_shares,
    unfit_values,
)
from prism_assets.metadata.tables.undefined_fields import load_fields
from prism_assets.stages.checks.outcomes import SHOWN, Check, CheckOutcome, Figures, failed, few, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext

ROWS_BALANCE = "rows_balance"
QUARANTINE_RATE = "quarantine_rate"
VALUE_LENGTHS = "value_lengths"
UNDEFINED_FIELDS = "undefined_fields"

_DAY = timedelta(days=1)
_NEWS = timedelta(days=7)


def check_rows_balance(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether each line is a row, set aside, left out or erased: of objects converted since then, or of one day."""
    with context.database.begin() as connection:
        balances = ledgers.balances(connection, request.ids, request.since, request.day)
        found = {item.table_id: item for item in balances}
    return [_judge_balance(table, found.get(table.table_id), request.day) for table in request.tables]


def _judge_balance(table: TableDefinition, ledger: Balance | None, day: date | None) -> CheckOutcome:
    if ledger is None:
        none = "no object was converted since then" if day is None else f"no object has rows of {day}"
        return passed(table, ROWS_BALANCE, none)
    figures: Figures = {
        "objects": ledger.objects,
        "lines in": ledger.lines_in,
        "rows out": ledger.rows_out,
        "lines quarantined": ledger.quarantined,
        "lines filtered": ledger.filtered,
        "lines erased": ledger.erased,
        "lines of other tables": ledger.elsewhere,
        "objects out of balance": ledger.unbalanced_objects,
    }
    if not ledger.unbalanced_objects:
        sentence = (
            f"{counted(ledger.lines_in, 'line')} in = {counted(ledger.rows_out, 'row')} out + {ledger.quarantined} "
            f"quarantined{f' + {ledger.filtered} filtered' if ledger.filtered else ''}"
            f"{f' + {ledger.erased} erased' if ledger.erased else ''}"
            f"{f' + {ledger.elsewhere} of other tables' if ledger.elsewhere else ''}"
        )
        return passed(table, ROWS_BALANCE, f"{sentence}, for each of {counted(ledger.objects, 'object')}", figures)
    return failed(
        table,
        ROWS_BALANCE,
        f"{ledger.unbalanced_objects} of {counted(ledger.objects, 'staging object does', 'staging objects do')} not "
        f"balance: {'; '.join(ledger.unbalanced)}. Rows may be lost or doubled: keep all objects, and report it",
        figures,
    )


def check_quarantine_rate(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """The share of the last day's lines in quarantine, and the number of values that did not fit."""
    since = request.now - _DAY
    with context.database.begin() as connection:
        found = {item.table_id: item for item in quarantine_shares(connection, request.ids, since)}
        above = [
            table.table_id
            for table in request.tables
            if (item := found.get(table.table_id)) and _share(item) > request.limits_of(table).quarantine_rate
        ]
        reasons = quarantine_reasons(connection, above, since) if above else {}
        unfit = unfit_values(connection, request.ids, since)
    return [
        _judge_share(
            table,
            found.get(table.table_id),
            request.limits_of(table),
            reasons.get(table.table_id, ()),
            unfit.get(table.table_id, ()),
        )
        for table in request.tables
    ]


def _share(item: QuarantineShare) -> float:
    return item.quarantined / item.lines if item.lines else 0.0


def _judge_share(
    table: TableDefinition,
    item: QuarantineShare | None,
    limits: CheckLimits,
    reasons: Sequence[tuple[str, int]],
    unfit: Sequence[UnfitValues],
) -> CheckOutcome:
    """Judges quarantined lines only. Unfit values never fail the check, because their rows exist.

    The most frequent are named.
    """
    if item is None or not item.lines:
        return passed(table, QUARANTINE_RATE, "no line came in the last day", {"share": 0.0})
    figures: Figures = {
        "lines in": item.lines,
        "lines quarantined": item.quarantined,
        "share": _share(item),
        "values that did not fit": sum(values.count for values in unfit),
        **{f"unfit values: {values.column} ({values.reason})": values.count for values in unfit[:SHOWN]},
    }
    sentence = (
        f"{item.quarantined} of {counted(item.lines, 'line')} of the last day are quarantined ({_share(item):.2%})"
    )
    if _share(item) <= limits.quarantine_rate:
        values = few([f"{values.column} {values.count} {values.reason}" for values in unfit])
        more = f"; values that did not fit, and are null or cut: {values}" if unfit else ""
        return passed(table, QUARANTINE_RATE, f"{sentence}{more}", figures)
    why = ", ".join(f"{lines} {reason}" for reason, lines in reasons[:SHOWN])
    more = f"above the limit of {limits.quarantine_rate:.2%}: {why}; see `prism quarantine list --table {table.name}`"
    if reasons and are_mostly_quarantined(item.lines, item.quarantined):
        more += f". That is more than half: {advice_of(table, reasons[0][0])}"
    return failed(table, QUARANTINE_RATE, f"{sentence}, {more}", figures)


def check_value_lengths(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether values of the last day were cut, or became null, as they were longer than their column."""
    with context.database.begin() as connection:
        unfit = unfit_values(connection, request.ids, request.now - _DAY)
    return [_judge_lengths(table, unfit.get(table.table_id, ())) for table in request.tables]


def _judge_lengths(table: TableDefinition, unfit: Sequence[UnfitValues]) -> CheckOutcome:
    warnings = length_warnings(table.columns, unfit)
    figures: Figures = {
        f"{item.column} ({item.reason})": item.count for item in unfit if item.reason in (CUT, TOO_LONG)
    }
    if not warnings:
        return passed(table, VALUE_LENGTHS, "no value of the last day was longer than its column", figures)
    return failed(
        table,
        VALUE_LENGTHS,
        f"values of the last day lost something: {few(warnings)}. Then `prism rebuild {table.name}` makes older rows "
        "again",
        figures,
    )


def check_undefined_fields(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether lines have new fields, first seen in the last days, that no column reads."""
    with context.database.begin() as connection:
        seen = load_fields(connection, request.ids)
    return [_judge_fields(table, still_undefined(table, seen), request.now) for table in request.tables]


def _judge_fields(table: TableDefinition, fields: Sequence[SeenField], now: datetime) -> CheckOutcome:
    """New fields fail the check for some days only, because they may be left out on purpose.

    A full contract fails it, too.
    """
    places = {field.path: field.place for field in fields}
    new = sorted({field.path for field in fields if field.first_time and field.first_time > now - _NEWS})
    figures: Figures = {"undefined keys": len(places), "new keys": len(new)}
    if full := full_contract(table, fields):
        return failed(table, UNDEFINED_FIELDS, full.text, figures)
    if not new:
        sentence = (
            f"no field came new in the last {_NEWS.days} days; {counted(len(places), 'key has', 'keys have')} no column"
        )
        return passed(table, UNDEFINED_FIELDS, sentence, figures)
    told = few([f"{key} (as in {places[key]})" for key in new])
    return failed(
        table,
        UNDEFINED_FIELDS,
        f"lines have fields that no column reads, new in the last {_NEWS.days} days: {told}. "
        f"`prism table drift {table.name} --patch` prints columns for them",
        figures,
    )


CHECKS = (
    Check(
        name=ROWS_BALANCE,
        asset="live",
        about="Lines in = rows out + quarantined + filtered + erased + lines of other tables, for each staging object; "
        "its rows are in objects.",
        evaluate=check_rows_balance,
        is_error=True,
        blocking=True,
    ),
    Check(
        name=QUARANTINE_RATE,
        asset="live",
        about="The share of lines of the last day that were quarantined is within its limit.",
        evaluate=check_quarantine_rate,
    ),
    Check(
        name=VALUE_LENGTHS,
        asset="live",
        about="No value of the last day was cut or null because its column is too short.",
        evaluate=check_value_lengths,
    ),
    Check(
        name=UNDEFINED_FIELDS,
        asset="live",
        about="No new field without a column has appeared in lines.",
        evaluate=check_undefined_fields,
    ),
)
