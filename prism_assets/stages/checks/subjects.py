"""Checks of findings, one check per subject: a table with a finding of the subject fails."""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.findings import Finding, count_kinds
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.checks.outcomes import Check, CheckOutcome, few
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.registry import SUBJECTS
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject


def check_of(subject: Subject, check: FindingCheck) -> Check:
    """Returns the check of a subject. It reads the findings of all tables in one transaction."""

    def evaluate(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
        with context.database.begin() as connection:
            look = Look(context=context, connection=connection, tables=request.tables, now=request.now)
            found = list(subject.find(look))
        return [
            _outcome(check, table, [item for item in found if item.table == str(table.name)])
            for table in request.tables
        ]

    return Check(
        name=check.name,
        asset=check.asset,
        about=check.about,
        evaluate=evaluate,
        is_error=check.is_error,
        of_topics=check.of_topics,
    )


def _outcome(check: FindingCheck, table: TableDefinition, found: Sequence[Finding]) -> CheckOutcome:
    """Failing findings come first."""
    ordered = sorted(found, key=lambda item: not check.fails(item))
    return CheckOutcome(
        table=str(table.name),
        check=check.name,
        passed=not any(map(check.fails, found)),
        sentence=few([item.text for item in ordered]) or check.passes,
        figures=count_kinds(found),
    )


CHECKS = tuple(check_of(subject, subject.check) for subject in SUBJECTS if subject.check)
