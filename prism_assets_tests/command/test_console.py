"""Output to a terminal."""

from __future__ import annotations

from rich.console import Console

from prism_assets.console import escape


def test_names_of_objects_cannot_command_a_terminal() -> None:
    """S3 takes any text for a key, and messages show keys."""
    console = Console(highlight=False, width=200)
    with console.capture() as shown:
        console.print(escape("s3://b/a\x1b[2J\tb\u202e [red]é😀[/red]\nnext line"))
    assert shown.get() == "s3://b/a\\x1b[2J\\tb\\u202e [red]é😀[/red]\nnext line\n"
