"""Every command takes the names of tables either way: as words of their own, and behind --table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from prism_assets.domain.errors import WrongUse

_Command = TypeVar("_Command", bound=Callable[..., None])
_OTHER = "table_named_otherwise"


def takes_tables(command: _Command) -> _Command:
    """For a command with the option `--table`, which may be repeated: names may stand there without it, too."""

    @wraps(command)
    def run(**given: Any) -> None:
        words: Sequence[str] = given.pop(_OTHER) or ()
        named = [*(given["table"] or ()), *words]
        command(**{**given, "table": named or None})

    words = Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="Only this schema.table.")]
    return cast(_Command, _with_signature(run, command, {_OTHER: words}, {}))


def takes_table(command: _Command) -> _Command:
    """For a command whose first word is the name of a table: the name may stand behind `--table`, too."""
    parameter = next(iter(inspect.signature(command).parameters.values()))
    name, is_optional = parameter.name, parameter.default is None

    @wraps(command)
    def run(**given: Any) -> None:
        option: str | None = given.pop(_OTHER)
        chosen = {given[name], option} - {None}
        if len(chosen) > 1:
            raise WrongUse(f"{given[name]} and {option} are two tables, and this command takes one. Nothing was done")
        if not chosen and not is_optional:
            raise WrongUse("name a table: schema.table, as a word of its own or behind --table. Nothing was done")
        command(**{**given, name: next(iter(chosen), None)})

    (argument,) = get_type_hints(command, include_extras=True)[name].__metadata__
    word = Annotated[str | None, typer.Argument(metavar="TABLE", help=argument.help)]
    option = Annotated[str | None, typer.Option("--table", help="The same, as an option.")]
    return cast(_Command, _with_signature(run, command, {name: word}, {_OTHER: option}))


def _with_signature(run: Any, command: Any, first: dict[str, Any], last: dict[str, Any]) -> Any:
    """The function with the parameters of the command and two kinds of others, all by keyword, as Typer calls it."""
    kinds = {**get_type_hints(command, include_extras=True), **first, **last}
    defaults = {name: item.default for name, item in inspect.signature(command).parameters.items()}
    defaults = {**dict.fromkeys(first), **{name: item for name, item in defaults.items() if name not in first}}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kinds[name])
        for name, default in {**defaults, **dict.fromkeys(last)}.items()
    ]
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {name: kinds[name] for name in run.__signature__.parameters}
    return run
