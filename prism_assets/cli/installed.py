"""Commands of other packages, found by their entry points."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint

import typer

from prism_assets import console
from prism_assets.cli.panels import LOCAL
from prism_assets.domain.errors import PrismError, TerminalError, WrongUse

_NO_LOCAL = "`prism local` is not installed: install prism-assets-local, or run scripts/bootstrap in a clone"


def mount_installed(group: typer.Typer, found: Iterable[EntryPoint]) -> None:
    """Adds the commands of other packages. Without prism-assets-local, `prism local` names the package to install.

    A command that does not load, as after half an upgrade, fails with the reason when called. All others work.
    """
    entries = {entry.name: entry for entry in found}
    own = _names_of(group)
    for name, entry in entries.items():
        package = entry.dist.name if entry.dist else entry.module
        if name in own:
            console.complain(f"{package} brings a command `{name}`, which prism has itself: it is left out")
            continue
        try:
            commands = entry.load()
            if not isinstance(commands, typer.Typer):
                raise TypeError(f"{entry.value} is no Typer app")
            group.add_typer(commands, name=name, rich_help_panel=LOCAL)
        except Exception as error:
            _add_failing_command(
                group, name, TerminalError(f"`prism {name}` does not load ({error}): install {package} again")
            )
    if "local" not in entries:
        _add_failing_command(group, "local", WrongUse(_NO_LOCAL))


def _names_of(group: typer.Typer) -> set[str | None]:
    """Returns the names of a group's commands. A command without a name is called like its function."""
    commands = group.registered_commands
    unnamed = {command.callback.__name__.replace("_", "-") for command in commands if command.callback}
    return {*unnamed, *(command.name for command in commands), *(item.name for item in group.registered_groups)}


def _add_failing_command(group: typer.Typer, name: str, error: PrismError) -> None:
    """Adds a command that raises an error for any words. --help leaves it out."""
    any_words = {"allow_extra_args": True, "ignore_unknown_options": True}

    @group.command(name, hidden=True, add_help_option=False, context_settings=any_words)
    def fail() -> None:
        raise error
