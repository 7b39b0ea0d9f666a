"""`prism join`: explains records of join tables, and proposes their window."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, open_context
from prism_assets.cli.table_names import takes_table

if TYPE_CHECKING:
    from prism_assets.domain.records.join_advice import ChangeSample
    from prism_assets.domain.tables.definition import TableDefinition
    from prism_assets.stages.context import StageContext

join_app = typer.Typer(no_args_is_help=True, help="Explains records of join tables, and proposes their window.")


@join_app.command()
@takes_table
def explain(
    table: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    key: Annotated[
        list[str], typer.Option("--key", help="The key: one option for each of its columns, in their order.")
    ],
    as_json: Json = False,
) -> None:
    """Lists every change of a key, the one that won, and the reason."""
    from prism_assets.reading.explain import explain_key
    from prism_assets.reading.lake_reader import LakeReader

    context = open_context(as_json)
    (definition,) = context.choose_tables([table])
    explained = explain_key(LakeReader(context.settings), definition, key)
    console.show_lines([explained], explained.lines, as_json=as_json)


@join_app.command()
@takes_table
def advise(
    table: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    days: Annotated[int, typer.Option("--days", min=1, max=366, help="Number of newest days to look at.")] = 7,
    changes: Annotated[
        int, typer.Option("--changes", min=100, max=5_000_000, help="Approximate number of changes to look at.")
    ] = 200_000,
    as_json: Json = False,
) -> None:
    """Proposes a window and a lateness from a sample of the log, with the effect of others."""
    from prism_assets.domain.records.join_advice import advise as advise_on

    context = open_context(as_json)
    (definition,) = context.choose_tables([table])
    sample = _read_sample(context, definition, days, changes)
    assert definition.join is not None
    advice = advise_on(str(definition.name), definition.join, sample)
    console.show_lines([advice.document], advice.lines, as_json=as_json)


def _read_sample(context: StageContext, table: TableDefinition, days: int, changes: int) -> ChangeSample:
    """Event times as readers see them, and of PostgreSQL when their objects were sent."""
    from prism_assets.domain.records.join_advice import ChangeSample
    from prism_assets.domain.streams.reasons import TOO_LATE
    from prism_assets.metadata.intake.quarantine import quarantine_reasons
    from prism_assets.metadata.records import join_figures
    from prism_assets.reading.change_sample import sample_changes
    from prism_assets.reading.lake_reader import LakeReader

    found = sample_changes(LakeReader(context.settings), table, most_days=days, most_changes=changes)
    since = datetime.now(timezone.utc) - timedelta(days=7)
    with context.database.begin() as connection:
        sent = join_figures.load_send_times(connection, {item for key in found.keys for _, item in key})
        log = join_figures.load_logs(connection, [table.table_id])[table.table_id]
        refused = dict(quarantine_reasons(connection, [log], since).get(log, ()))
    return ChangeSample(
        days=found.days,
        log_changes=found.log_changes,
        one_of=found.one_of,
        histories=[[seconds for seconds, _ in key] for key in found.keys],
        delays=[sent[item] - seconds for key in found.keys for seconds, item in key if item in sent],
        too_late=refused.get(TOO_LATE, 0),
    )
