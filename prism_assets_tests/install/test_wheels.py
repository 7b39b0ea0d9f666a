"""The wheels: complete, with links that lead somewhere, and enough by themselves to go from a sample to rows."""

from __future__ import annotations

import email
import json
import re
import signal
import subprocess
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

from prism_assets_tests.command.prism import environment
from prism_assets_tests.install.clean import ROOT, URL, Environment, borrow_dependencies, build_wheels
from prism_assets_tests.install.workers import a_worker, await_rows
from prism_assets_tests.world import World

ROWS = [[1], [2], [3]]
_LINK = re.compile(r'\]\(([^)\s]+)\)|\b(?:src|srcset)="([^"]+)"')
_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("dist"), "--no-kernel")


@pytest.fixture(scope="module")
def desk(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return borrow_dependencies(tmp_path_factory.mktemp("desk") / "venv", wheels)


DISTRIBUTIONS = {"prism_assets": "prism_assets", "prism_local": "prism_assets_local"}
"""The names in the files of wheels, by package."""


def wheel_of(wheels: Path, package: str) -> zipfile.ZipFile:
    (file,) = wheels.glob(f"{DISTRIBUTIONS[package]}-*.whl")
    return zipfile.ZipFile(file)


def known_to_git(*folders: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_wheels_hold_every_file_that_git_knows_and_no_other(wheels: Path) -> None:
    for_authors = {"README.md", "LICENSE", "pyproject.toml", "ruff.toml", "script.py.mako"}
    linked = {f"prism_local/demo/{file}" for file in known_to_git("tables")}
    for name, added, left_out in (("prism_assets", set(), set()), ("prism_local", linked, {"prism_local/demo/tables"})):
        meant = {file for file in known_to_git(name) | added if Path(file).name not in for_authors} - left_out
        held = {file for file in wheel_of(wheels, name).namelist() if ".dist-info/" not in file}
        assert (held - meant, meant - held) == (set(), set()), name


def test_each_link_of_a_description_is_absolute_and_leads_to_a_file(wheels: Path) -> None:
    for name in ("prism_assets", "prism_local"):
        with wheel_of(wheels, name) as wheel:
            (metadata,) = (file for file in wheel.namelist() if file.endswith(".dist-info/METADATA"))
            description = str(email.message_from_bytes(wheel.read(metadata)).get_payload())
        links = [one or other for one, other in _LINK.findall(_FENCED.sub("", description))]
        assert links or name != "prism_assets"
        for link in links:
            assert link.startswith("https://"), link
            for base in (URL, URL.replace("/blob/", "/raw/")):
                if link.startswith(f"{base}/"):
                    assert (ROOT / link.removeprefix(f"{base}/").partition("#")[0]).exists(), link


def test_a_wrong_use_builds_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words, sentence in (
        (["--what"], "usage: scripts/wheels"),
        ([str(tmp_path / "file")], f"wheels: {tmp_path / 'file'} is no folder; nothing was built"),
    ):
        done = subprocess.run([ROOT / "scripts" / "wheels", *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(sentence)


def prism(desk: Environment, folder: Path, *commands: list[str], script: Path | None = None) -> str:
    """Runs commands, and then a script, in one process. Returns their output."""
    words: list[str | Path] = [Path(__file__).with_name("commands.py"), json.dumps(commands)]
    words += [script] if script else []
    return desk.run("python", *words, cwd=folder)


def test_wheels_alone_go_from_a_sample_to_rows_in_three_readers(
    desk: Environment, world: World, tmp_path: Path
) -> None:
    settings = {name: value for name, value in environment(world).items() if name != "PRISM_TABLES_DIR"}
    aws = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    desk = desk.with_settings({**settings, **aws})
    now = datetime.now(timezone.utc)
    lines = "".join(f'{{"time": "{now:%FT%TZ}", "user_id": {number}}}\n' for (number,) in ROWS)
    (tmp_path / "signups.jsonl").write_text(lines)

    lake = tmp_path / "lake"
    lake.mkdir()
    first = ("--table", "log.signups", "--sample", "../signups.jsonl", "--url", "s3://staging/signups/")
    prism(desk, lake, ["init", ".", *first], ["table", "apply"])
    world.drop([], stream="signups", body=lines.encode())
    with a_worker(desk, lake) as worker:
        await_rows(world, len(ROWS))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(300) == 0
    with (lake / "tables" / "log" / "signups.yaml").open("a") as file:
        file.write("iceberg: true\n")
    query = ["query", "SELECT user_id FROM log.signups ORDER BY 1", "--json"]
    said = prism(desk, lake, ["table", "apply"], ["run"], query, script=Path(__file__).with_name("readers.py"))

    answer, counted = said.rindex("\n["), said.rindex("\n{")  # the output of the query, and that of the script
    assert json.loads(said[answer:counted]) == [{"user_id": number} for (number,) in ROWS]
    found = json.loads(said[counted:])
    assert (found["manifest"], found["iceberg"]) == (ROWS, ROWS)
    assert Path(found["code"]).is_relative_to(desk.folder)


def test_the_demo_and_the_stack_are_commands_of_the_wheels(desk: Environment, tmp_path: Path) -> None:
    assert (desk.folder / "bin" / "prism-local").is_file()
    code = "from prism_local.demo import session; print(session.__file__, *session.demo_tables())"
    module, *tables = desk.run("python", "-c", code, cwd=tmp_path).split()
    assert set(tables) == known_to_git("tables")
    assert Path(module).is_relative_to(desk.folder)
