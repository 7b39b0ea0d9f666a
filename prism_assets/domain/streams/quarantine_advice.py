"""Findings about tables with mostly quarantined lines: the reason, and the setting to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.streams import reasons
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted

ReasonCount = tuple[str, int]
_SHOWN = 3


def are_mostly_quarantined(lines: int, quarantined: int) -> bool:
    """Whether more than half of the lines were quarantined. Then the table file probably does not fit them."""
    return 2 * quarantined > lines


def find_mostly_quarantined(
    table: TableDefinition, lines: int, counts: Sequence[ReasonCount], when: str = "", *, acts: Acts
) -> Finding | None:
    """Returns the finding about a table with mostly quarantined lines, or None.

    `lines` are those of the table, without lines of other tables. `counts` are lines by reason, `when` describes the
    time. The remedy names the setting for the most frequent reason.
    """
    ordered = sorted(counts, key=lambda item: (-item[1], item[0]))
    quarantined = sum(count for _, count in ordered)
    if not ordered or not are_mostly_quarantined(lines, quarantined):
        return None
    top = ", ".join(f"{count:,} {reason}" for reason, count in ordered[:_SHOWN])
    return Finding(
        kind="lines_set_aside",
        table=str(table.name),
        says=f"{quarantined:,} of {counted(lines, 'line')}{when} are quarantined, more than half ({top})",
        remedy=advice_of(table, ordered[0][0]),
        acts=acts,
        count=quarantined,
        ends_runs=acts is Acts.PERSON,
    )


def advice_of(table: TableDefinition, reason: str) -> str:
    """Returns the setting to change for a quarantine reason, and how the lines then become rows."""
    setting = _settings(table).get(reason)
    if setting is None and reason in {rejection.reason for rejection in table.reject}:
        setting = f"`reject` with the reason {reason} sets them aside"
    again = f"`prism quarantine replay {table.name}` makes rows of them"
    if setting is None:
        return f"`prism quarantine list --table {table.name}` says where they are; after a mend {again}"
    return f"{setting}; then {again}"


def _settings(table: TableDefinition) -> Mapping[str, str]:
    """Returns the table file's setting for each reason, if there is one."""
    time = f"column {table.partition_column}"
    old = "" if table.retention_days is None else f", and retention_days: {table.retention_days} may be too short"
    accept = "in its table file is too short for their dates"
    shape = (
        "the objects hold something else than the format of their stream says: try one with `prism table try`, which "
        "names the format to write for documents. Objects keep the format that they were read by: copy them to new keys"
    )
    written = f"look how times are written: source, time_unit and source_offset of {time} say how they are read"
    return {
        reasons.TOO_OLD: f"accept: {{past_days: {table.past_days}}} {accept}{old}",
        reasons.TOO_NEW: f"accept: {{future_days: {table.future_days}}} {accept}",
        reasons.TOO_LATE: "lateness in its table file is too short for them",
        reasons.MISSING_TIME: f"no time is found in them: correct the source of {time}",
        reasons.BAD_TIME: written,
        reasons.NULL_IN_REQUIRED: "remove `required` from columns that are null in them, or correct their source",
        reasons.UNDEFINED_FIELD: "contract: {new_fields: freeze} sets them aside: say report, or add the columns",
        reasons.MISFIT: "contract: {misfits: quarantine} sets them aside: say empty, or correct the types",
        reasons.BAD_JSON: shape,
        reasons.NO_RECORDS: "`records` in the format of their stream names no array in them: correct the path",
        reasons.NOT_OBJECT: shape,
        reasons.BAD_MESSAGE: "the format of their stream in the table file names another type of messages",
        reasons.TOMBSTONE: "`tombstones: reject` of their stream sets them aside: say filter, or row",
        reasons.BAD_TEXT: "`csv` or `regex` in the format of their stream does not fit them: correct it",
        reasons.BAD_HEADER: (
            "the first line of their object names no field that a column reads: give the stream `columns` for "
            "`header: true`, or the columns the names of the header. Objects keep their header: copy them to new keys"
        ),
        reasons.BAD_FRAMING: "the format of their stream in the table file is not that of its objects",
    }
