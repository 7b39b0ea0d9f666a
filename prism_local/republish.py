"""Fills the local catalog from PostgreSQL, because the catalog server forgets everything when it stops."""

from datetime import datetime, timezone

from rich.console import Console

from prism_assets.domain.errors import TerminalError
from prism_assets.domain.text import counted
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.installation import take_lake
from prism_assets.stages.leases import takeover_seconds
from prism_local.reports import StackReport


def republish(report: StackReport, out: Console) -> None:
    """Publishes again everything on record, after an `up` with an empty catalog. Switches and closes nothing.

    After an error the catalog counts as not filled, and the next `prism local up` repeats this.
    """
    if not report.catalog_empty:
        return
    context = build_context(load_settings())
    context.database.migrate()
    if not context.choose_tables(None):
        return
    # A lake set up before markers existed has none.
    take_lake(context.database, context.lake, context.stores, datetime.now(timezone.utc))
    done = run_catalog(context, now=datetime.now(timezone.utc), republish=True, wait_seconds=takeover_seconds(context))
    if done.errors:
        raise TerminalError(
            "\n".join(
                ["the servers run, but their catalog is not complete; `prism local up` goes on there:", *done.errors]
            )
        )
    count = sum(len(table.published) for table in done.tables)
    out.print(
        f"the catalog was published again from PostgreSQL: {counted(len(done.tables), 'table')}, "
        f"{counted(count, 'partition')}"
    )
