"""How drafts and trials of table files look on a terminal, and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prism_assets.console import escape, out, print_json
from prism_assets.domain.tables.draft import unsound_words
from prism_assets.domain.text import counted

if TYPE_CHECKING:
    from prism_assets.drafting.cases import CaseReport
    from prism_assets.drafting.differences import Differences
    from prism_assets.drafting.draft import Draft, WrittenRecipe
    from prism_assets.drafting.trial import Trial
    from prism_assets.stages.drift import Drift

_MOST_KEYS = 50


def show_draft(draft: Draft, *, as_json: bool) -> None:
    """Prints a drafted table file, or where it was written and what comes next."""
    if as_json:
        print_json(draft)
    elif draft.path is None:
        sys.stdout.write(draft.text)
    else:
        rejected = f", {counted(draft.rejected, 'line')} no JSON object" if draft.rejected else ""
        sample = f"{counted(draft.lines, 'line')} of {counted(draft.objects, 'object')}"
        out.print(escape(f"{draft.path}: {draft.table}, from {sample}{rejected}"))
        for words in unsound_words(draft.unsound):
            out.print(escape(words))
        for loss in draft.losses:
            out.print(f"[yellow]warning:[/yellow] {escape(loss)}")
        out.print(f"look at it, then run: prism table try {escape(str(draft.path))} --sample {escape(draft.sample)}")


def show_recipe(recipe: WrittenRecipe, *, as_json: bool) -> None:
    """Prints the table file of a recipe, or where it was written and what comes next."""
    if as_json:
        print_json(recipe)
    elif recipe.path is None:
        sys.stdout.write(recipe.text)
    else:
        out.print(escape(f"{recipe.path}: {recipe.table}, by the recipe {recipe.recipe}"))
        out.print(f"try it on some of the logs: prism table try {escape(str(recipe.path))} --sample PLACE")


def show_trial(trial: Trial, *, as_json: bool) -> None:
    """Prints what becomes of a sample under a table file."""
    if as_json:
        print_json(trial)
        return
    for row in trial.rows_shown:
        values = json.dumps(row.values, ensure_ascii=False)
        out.print(f"[dim]{escape(f'{row.object}:{row.line}')}[/dim] {escape(values)}")
    for line in trial.lines_shown:
        place = line.object if line.line is None else f"{line.object}:{line.line}"
        why = line.reason + (f" (column {line.column})" if line.column else "")
        out.print(f"[dim]{escape(place)}[/dim] [bold]{escape(why)}[/bold] {escape(line.text or '(not shown)')}")
    for day, count in trial.days.items():
        out.print(f"{day}: {counted(count, 'row')}")
    for reason, count in trial.quarantined.items():
        out.print(escape(f"{reason}: {counted(count, 'line')} quarantined"))
    for error in trial.value_errors:
        out.print(escape(f"{error.column}: {error.count:,} {error.reason}"))
    for column, meant in trial.empty_columns.items():
        out.print(escape(f"{column}: null in every row" + (f"; did you mean {meant}?" if meant else "")))
    for key, place in list(trial.undefined.items())[:_MOST_KEYS]:
        out.print(f"no column reads {escape(key)} [dim]{escape(place)}[/dim]")
    if (more := len(trial.undefined) - _MOST_KEYS) > 0:
        out.print(f"no column reads {counted(more, 'more key')}, which --json names")
    for warning in trial.warnings:
        out.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    if trial.differences:
        _show_differences(trial.differences)
    quarantined = sum(trial.quarantined.values())
    out.print(
        f"{trial.table}: {counted(trial.lines, 'line')} of {counted(trial.objects, 'object')}: "
        f"{counted(trial.rows, 'row')}, {trial.filtered:,} filtered, {quarantined:,} quarantined"
        f"{f', {trial.elsewhere:,} of other tables' if trial.elsewhere else ''}; "
        f"{trial.seconds:.1f} s, and nothing was written"
    )


def _show_differences(found: Differences) -> None:
    against = f"against version {found.version}"
    for move, count in found.moves.items():
        out.print(escape(f"{against}: {counted(count, 'line')} {move}"))
    for column in found.columns:
        out.print(escape(f"{against}: {column.column}: {column.differing:,} of {counted(found.both, 'row')}"))
        for item in column.examples:
            before, after = (json.dumps(value, ensure_ascii=False) for value in (item.before, item.after))
            out.print(f"    [dim]{escape(f'{item.object}:{item.line}')}[/dim] {escape(f'{before} → {after}')}")
    if not found.moves and not found.columns:
        out.print(f"{against}: {counted(found.both, 'row')}, and none differs")


def show_cases(reports: Sequence[CaseReport], *, as_json: bool) -> None:
    """Prints how the cases of table files went; failures are told as errors."""
    if as_json:
        print_json(reports)
        return
    for report in reports:
        failed = f", {counted(len(report.failures), 'failure')}" if report.failures else " passed"
        out.print(escape(f"{report.path}: {counted(report.cases, 'case')}{failed}"))
    if not reports:
        out.print("no table file has cases: write them to T.test.jsonl beside T.yaml")


def show_drift(drift: Drift, *, as_json: bool) -> None:
    """Prints the fields that no column of a table reads, never a value."""
    if as_json:
        told = {"fields": drift.fields, "is_full": drift.is_full, "full_contract": drift.full_contract}
        print_json({"table": str(drift.table.name), **told})
        return
    for field in drift.fields:
        times = f"from {field.first_time:%Y-%m-%d %H:%M}Z to {field.last_time:%Y-%m-%d %H:%M}Z"
        out.print(f"[bold]{escape(field.path)}[/bold]: {field.count:,} {field.kind.value}, {times}")
        out.print(f"    [dim]{escape(field.place)}[/dim]")
    if drift.is_full:
        out.print("no more keys are counted: there may be others")
    if drift.full_contract:
        out.print(escape(str(drift.full_contract)))
    if drift.fields:
        out.print(f"`prism table drift {drift.table.name} --patch` prints columns for them")
    else:
        out.print(f"{drift.table.name}: every field that is counted has a column")


def show_patch(columns: Sequence[str], fields: Sequence[str], *, as_json: bool) -> None:
    """Prints columns, and fields of structs, as table files have them."""
    if as_json:
        print_json([*columns, *fields])
        return
    lines = (*(["# below columns:"] if columns else []), *columns, *fields)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
