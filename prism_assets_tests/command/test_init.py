"""`prism init`: a folder from which the other commands and Dagster go on, and nothing of somebody's replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from prism_assets.drafting.project import project_texts
from prism_assets_tests.command.prism import Prism
from prism_local import credentials
from prism_local.layout import Layout

ROOT = Path(__file__).parents[2]
FILES = [".gitignore", "dagster.yaml", "prism.toml", "workspace.yaml", "tables/table-file.schema.json"]
LINES = '{"time": "2026-03-01T10:00:00Z", "user_id": 7}\n{"time": "2026-03-01T10:00:01Z", "user_id": 8}\n'
FIRST = ("--table", "log.signups", "--sample", "signups.jsonl", "--url", "s3://staging/signups/")


@pytest.fixture
def prism(prism: Prism, tmp_path: Path) -> Prism:
    """A person in an empty folder whose settings name the lake, but no folder of tables."""
    prism.set(tables_dir=None)
    (tmp_path / "signups.jsonl").write_text(LINES)
    return prism


def test_a_first_table_goes_from_its_sample_to_a_row_inside_the_new_folder(
    prism: Prism, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = prism.ok("init", "my lake", *FIRST)
    assert sorted(str(path.relative_to("my lake")) for path in Path("my lake").rglob("*") if path.is_file()) == sorted(
        [*FILES, "tables/log/signups.yaml"]
    )
    assert "  cd 'my lake'\n" in said.out
    assert "prism table init" not in said.out
    monkeypatch.chdir(tmp_path / "my lake")
    assert "create table log.signups" in prism.ok("table", "apply").out
    prism.world.drop([], stream="signups", body=LINES.encode())
    prism.ok("run")
    assert prism.world.query("SELECT user_id FROM log.signups ORDER BY 1") == [(7,), (8,)]


def test_without_a_sample_the_next_command_drafts_a_table(prism: Prism) -> None:
    assert prism.ok("init", "lake", "--json").json == {
        "project": {"folder": "lake", "written": FILES, "kept": []},
        "draft": None,
    }
    shutil.rmtree("lake")
    assert "  prism table init log." in prism.ok("init", "lake").out


def test_files_that_are_there_stay_and_missing_ones_come_beside_them(prism: Prism) -> None:
    Path("prism.toml").write_text('bucket = "lake"\n')
    said = prism.ok("init")
    assert ".: kept as they were: prism.toml\n" in said.out
    assert "  cd " not in said.out
    assert Path("prism.toml").read_text() == 'bucket = "lake"\n'
    assert all(Path(name).is_file() for name in FILES)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("signups.jsonl",), "signups.jsonl is no folder: name another folder; nothing was written"),
        (("lake", *FIRST[:2]), "give --table and --sample together, to draft a first table; nothing was written"),
        (("lake", *FIRST[2:4]), "give --table and --sample together, to draft a first table; nothing was written"),
        (("lake", *FIRST[4:]), "--url needs --table and --sample; nothing was written"),
        (("lake", *FIRST[:4]), "signups.jsonl is on this machine, so say where the objects of log.signups will"),
        (("lake", "--table", "signups", *FIRST[2:]), "signups is no table name: write schema.table"),
        (("lake", *FIRST[:2], "--sample", "missing", *FIRST[4:]), "missing"),
    ],
)
def test_a_wrong_use_is_one_sentence_and_begins_nothing(prism: Prism, words: tuple[str, ...], sentence: str) -> None:
    refused = prism("init", *words)
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert refused.err.startswith(f"prism: {sentence}")
    assert [path.name for path in Path().iterdir() if path.name in ("lake", "tables")] == []


def test_a_folder_in_the_place_of_a_file_is_named_before_anything_is_written(prism: Prism) -> None:
    Path("lake/dagster.yaml").mkdir(parents=True)
    refused = prism("init", "lake", *FIRST)
    assert refused.err == (
        "prism: lake/dagster.yaml is a folder where a file belongs: move it away; nothing was written\n"
    )
    assert not Path("lake/tables").exists()


def test_a_second_table_file_of_the_same_name_is_refused(prism: Prism) -> None:
    prism.ok("init", "lake", *FIRST)
    Path("lake/tables/log/signups.yaml").write_text("# mine\n")
    assert "exists already" in prism("init", "lake", *FIRST).err
    assert Path("lake/tables/log/signups.yaml").read_text() == "# mine\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_named(prism: Prism, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "closed is not writable" in prism("init", "closed/lake").err


def test_a_new_project_has_the_dagster_of_the_repository() -> None:
    texts = project_texts()
    for name in ("dagster.yaml", "workspace.yaml"):
        assert (ROOT / "prism_assets" / "drafting" / "project" / name).resolve() == ROOT / name
        assert texts[name] == (ROOT / name).read_text()


def test_dagster_takes_each_variable_of_its_database_from_the_local_stack(tmp_path: Path) -> None:
    database = yaml.safe_load(project_texts()["dagster.yaml"])["storage"]["postgres"]["postgres_db"]
    needed = {value["env"] for value in database.values() if isinstance(value, dict) and "env" in value}
    place = Layout(tmp_path)
    given = credentials.environment(credentials.load(place), {"postgres": 5432})
    assert needed
    assert needed <= set(given)
