"""The health of one table: its days, rows, checks and findings.

The sensor `table_health` reports the health on the table's own asset, `prism/<schema>.<table>`. The check `healthy` of
this asset answers a person at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dagster import DagsterInstance, MetadataValue, TableColumn, TableRecord, TableSchema

from prism_assets.defs.checks.evaluate import Selection, evaluate
from prism_assets.defs.checks.runless import last_outcomes
from prism_assets.defs.checks.specs import checks_of
from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.pictures import days_picture
from prism_assets.domain.findings import Finding
from prism_assets.domain.text import counted
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.context import StageContext
from prism_assets.stages.status import PartitionStatus, TableStatus, read_status

HEALTHY = "healthy"
"""The check of a table's own asset."""
_DAYS_SHOWN = 14
_DAYS_DRAWN = 30
_LINES_SHOWN = 20
_COLUMNS = TableSchema(
    [
        TableColumn("day", "string"),
        TableColumn("state", "string"),
        TableColumn("rows", "int"),
        TableColumn("small objects", "int"),
        TableColumn("merged objects", "int"),
        TableColumn("bytes", "int"),
        TableColumn("newest arrival", "string"),
        TableColumn("waits for", "string"),
    ]
)


@dataclass(frozen=True)
class Health:
    """The health of one table at one moment."""

    status: TableStatus
    checks: tuple[CheckOutcome, ...]

    @property
    def table(self) -> str:
        """`schema.table`."""
        return self.status.table

    @property
    def problems(self) -> tuple[str, ...]:
        """Failed checks, and findings for a person."""
        failed = [f"{item.check}: {item.sentence}" for item in self.checks if not item.passed]
        return (*failed, *(_line(item) for item in self._findings if item.needs_a_person))

    @property
    def is_healthy(self) -> bool:
        """Whether all checks pass and no finding waits for a person."""
        return not self.problems

    @property
    def sentence(self) -> str:
        """The first problem, or a summary of checks and days."""
        days = ", ".join(f"{count} {state}" for state, count in sorted(self._states.items()))
        if self.is_healthy:
            return f"all {counted(len(self.checks), 'check')} pass; days: {days or 'none yet'}"
        more = f" (and {len(self.problems) - 1} more)" if self.problems[1:] else ""
        return f"{self.problems[0]}{more}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """Metadata for the table's page. Dagster plots numbers over time."""
        days = sorted(self.status.partitions, key=lambda day: day.date)
        arrivals = [day.last_arrival for day in days if day.last_arrival]
        waits = [_line(item) for item in self._findings]
        return {
            "dagster/row_count": sum(day.rows for day in days),
            "healthy": self.is_healthy,
            "problems": _listed(self.problems),
            "waits": _listed(waits),
            "checks": f"{sum(item.passed for item in self.checks)} of {len(self.checks)} pass",
            "ledger": next((item.sentence for item in self.checks if item.check == "rows_balance"), "no ledger"),
            **({"newest arrival": MetadataValue.timestamp(max(arrivals))} if arrivals else {}),
            "staging objects pending": self.status.pending + self.status.claimed,
            "live worker": str(self.status.live_worker or "none"),
            "bytes": sum(day.bytes for day in days),
            "rows of the newest day": days[-1].rows if days else 0,
            **{f"days {state}": count for state, count in self._states.items()},
            "rows by day": days_picture([(day.date, day.rows) for day in days[-_DAYS_DRAWN:]]),
            "newest days": MetadataValue.table([_record(day) for day in reversed(days[-_DAYS_SHOWN:])], _COLUMNS),
        }

    @property
    def signal(self) -> str:
        """Changes with the health of the table, and with the state of a day."""
        return str((self.is_healthy, sorted((str(day.date), day.state) for day in self.status.partitions)))

    @property
    def mark(self) -> str:
        """Changes with rows, merged objects and findings, too."""
        figures = [(str(day.date), day.state, day.rows, day.merged_objects) for day in self.status.partitions]
        return str((self.problems, sorted(figures), sorted(map(_line, self._findings))))

    @property
    def _states(self) -> Counter[str]:
        return Counter(day.state for day in self.status.partitions)

    @property
    def _findings(self) -> Sequence[Finding]:
        return [*self.status.findings, *(item for day in self.status.partitions for item in day.findings)]


def read_health(
    context: StageContext, instance: DagsterInstance, location: Location, names: Collection[str], now: datetime
) -> list[Health]:
    """Returns the health of tables, sorted by name.

    Asks no catalog: `table_checks` does, in turn, and its last answers in Dagster count.
    """
    tables = context.choose_tables(names)
    found: dict[str, list[CheckOutcome]] = {str(table.name): [] for table in tables}
    for stage in Stage:
        of_stage = {str(table.name) for table in location.tables_of(stage)} & found.keys()
        checks = [
            (str(table.name), check)
            for table in tables
            if str(table.name) in of_stage
            for check in checks_of(stage, table)
        ]
        wanted = frozenset((name, check.name) for name, check in checks if not check.asks_catalog)
        asked = [(name, check.name) for name, check in checks if check.asks_catalog]
        current = evaluate(context, Selection(stage, wanted), location.limits(), now)
        for outcome in (*current, *last_outcomes(instance, asked)):
            found[outcome.table].append(outcome)
    known = {item.table: item for item in read_status(context, now=now, names=sorted(found))}
    return [Health(known[name], tuple(found[name])) for name in sorted(found)]


def _line(item: Finding) -> str:
    return f"{item.date}: {item.text}" if item.date else item.text


def _listed(lines: Sequence[str]) -> MetadataValue:
    more = [f"… and {len(lines) - _LINES_SHOWN} more"] if len(lines) > _LINES_SHOWN else []
    return MetadataValue.text("\n".join([*lines[:_LINES_SHOWN], *more]) or "nothing")


def _record(day: PartitionStatus) -> TableRecord:
    return TableRecord(
        {
            "day": day.date.isoformat(),
            "state": day.state,
            "rows": day.rows,
            "small objects": day.small_objects,
            "merged objects": day.merged_objects,
            "bytes": day.bytes,
            "newest arrival": f"{day.last_arrival:%Y-%m-%d %H:%M:%S}" if day.last_arrival else "",
            "waits for": "; ".join(item.says for item in day.findings),
        }
    )
