"""The panels of `prism --help`: commands stand in the panel of the task that they serve."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

DAILY, TABLES, REPAIR, READERS, LOCAL = PANELS = (
    "Daily: from new objects to readable rows",
    "Tables: define, try and change",
    "Repair: look, mend and delete",
    "Readers: query and list",
    "Local stack, and commands of other packages",
)

LEGEND = (
    "Commands print one JSON document with --json. Exit status: 0 done, 1 failed or left for a person, 2 wrong "
    "use. Retrying is always safe."
)
"""The one legend, below the panels."""


class InPanels(TyperGroup):
    """Lists commands in the order of the panels, and inside a panel as they were added."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of commands as `--help` shows them."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _place(self.commands[name]))


def _place(command: Any) -> int:
    panel = getattr(command, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)
