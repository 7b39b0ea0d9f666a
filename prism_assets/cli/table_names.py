"""Commands take names of tables as words, and after --table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, TypeVar, cast

import typer

from prism_assets.domain.errors import WrongUse

_Command = TypeVar("_Command", bound=Callable[..., None])
_OTHER = "table_named_otherwise"


def takes_tables(command: _Command) -> _Command:
    """Lets a command whose option `--table` may be repeated take names as words, too."""

    @wraps(command)
    def run(**given: Any) -> None:
        words: Sequence[str] = given.pop(_OTHER) or ()
        named = [*(given["table"] or ()), *words]
        command(**{**given, "table": named or None})

    words = Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="Only this schema.table.")]
    return cast(_Command, _with_signature(run, command, {_OTHER: words}, {}))


def takes_table(command: _Command) -> _Command:
    """Lets a command whose first word is the name of a table take it after `--table`, too."""
    parameter = next(iter(inspect.signature(command).parameters.values()))
    name, is_optional = parameter.name, parameter.default is None

    @wraps(command)
    def run(**given: Any) -> None:
        option: str | None = given.pop(_OTHER)
        chosen = {given[name], option} - {None}
        if len(chosen) > 1:
            raise WrongUse(f"{given[name]} and {option} are two tables, and this command takes one. Nothing was done")
        if not chosen and not is_optional:
            raise WrongUse("name a table: schema.table, as a word or after --table. Nothing was done")
        command(**{**given, name: next(iter(chosen), None)})

    (argument,) = inspect.get_annotations(command, eval_str=True)[name].__metadata__
    word = Annotated[str | None, typer.Argument(metavar="TABLE", help=argument.help)]
    option = Annotated[str | None, typer.Option("--table", help="The table, as an option.")]
    return cast(_Command, _with_signature(run, command, {name: word}, {_OTHER: option}))


def _with_signature(run: Any, command: Any, first: dict[str, Any], last: dict[str, Any]) -> Any:
    """Gives `run` a signature for Typer: the parameters `first`, those of the command, and `last`, all by keyword."""
    kinds = {**inspect.get_annotations(command, eval_str=True), **first, **last}
    defaults = {name: item.default for name, item in inspect.signature(command).parameters.items()}
    defaults = {**dict.fromkeys(first), **{name: item for name, item in defaults.items() if name not in first}}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kinds[name])
        for name, default in {**defaults, **dict.fromkeys(last)}.items()
    ]
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {name: kinds[name] for name in run.__signature__.parameters}
    return run
