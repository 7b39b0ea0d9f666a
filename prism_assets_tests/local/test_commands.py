"""The command line of the local stack."""

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from prism_local import commands
from prism_local import stack as stacks
from prism_local.postgres import Postgres
from prism_local.reports import StackReport
from prism_local.stack import LocalStack

runner = CliRunner()


def app_with(reports: list[StackReport]) -> typer.Typer:
    def after_up(report: StackReport, console: Console) -> None:
        reports.append(report)

    return commands.build_app(after_up)


def test_status_before_the_first_up(tmp_path: Path) -> None:
    done = runner.invoke(app_with([]), ["status", "--json", "--root", str(tmp_path / "none")])
    assert done.exit_code == 0
    assert {service["state"] for service in json.loads(done.stdout)} == {"stopped"}
    assert not (tmp_path / "none").exists()


def test_up_status_reset(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_KINDS", (Postgres,))
    monkeypatch.setenv("PRISM_HOME", str(stack.place.root))
    reports: list[StackReport] = []
    app = app_with(reports)

    up = runner.invoke(app, ["up", "--json"])
    assert json.loads(up.stdout)["started"] == ["postgres"]
    assert "postgres: ready after" in up.stderr
    assert [report.started for report in reports] == [("postgres",)]
    assert "postgres" in runner.invoke(app, ["status"]).stdout

    assert runner.invoke(app, ["reset"], input="n\n").exit_code == 1
    assert stack.place.env.exists()
    assert runner.invoke(app, ["reset", "--yes"]).exit_code == 0
    assert not stack.place.env.exists()
    assert "Nothing was running." in runner.invoke(app, ["down"]).stdout
