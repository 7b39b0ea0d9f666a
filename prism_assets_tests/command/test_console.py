"""Output to a terminal."""

from __future__ import annotations

from rich.console import Console

from prism_assets.console import escape, out, show_doctor
from prism_assets.stages.doctor.report import DoctorReport


def test_names_of_objects_cannot_command_a_terminal() -> None:
    """S3 takes any text for a key, and messages show keys."""
    console = Console(highlight=False, width=200)
    with console.capture() as shown:
        console.print(escape("s3://b/a\x1b[2J\tb\u202e [red]é😀[/red]\nnext line"))
    assert shown.get() == "s3://b/a\\x1b[2J\\tb\\u202e [red]é😀[/red]\nnext line\n"


def test_doctor_names_the_executors_that_read_without_the_kernel() -> None:
    report = DoctorReport(
        findings=(), unseen=(), tables=1, partitions=2, objects=3, deep=False, published_design=False, seconds=1
    )
    with out.capture() as shown:
        show_doctor(
            report, without_kernel="", executors_without_kernel={"node-7": "PRISM_KERNEL is off"}, as_json=False
        )
    assert shown.get().splitlines() == [
        "the executor on node-7 reads lines without the compiled kernel: PRISM_KERNEL is off",
        "nothing is wrong: 1 table, 2 partitions in the catalog, 3 objects looked at in 1.0 s",
    ]
