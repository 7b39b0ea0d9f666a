"""docs/getting-started.md: each command of the page, run in order, as a stranger would."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from prism_assets_tests.command.prism import Done, Prism

PAGE = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()
SECTIONS = dict(re.findall(r"^## (\d)\. [^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.M))


@pytest.fixture
def reader(prism: Prism, tmp_path: Path) -> Prism:
    """A person in an empty folder, with the stack of the world."""
    prism.set(tables_dir="tables")
    (Path(str(prism.world.settings.local_root)) / "prism-staging").mkdir()
    return prism


def run(prism: Prism, section: str) -> list[Done]:
    """Runs the commands of a section: prism in this process, others in a shell."""
    done = []
    for block in re.findall(r"^```sh\n(.*?)^```", SECTIONS[section], re.DOTALL | re.M):
        if "prism " not in block:
            subprocess.run(["bash", "-eu", "-c", block], check=True)
            continue
        for line in block.splitlines():
            command, _, may_fail = line.partition(" || ")
            done.append(prism(*shlex.split(command)[1:]))
            assert done[-1].status == 0 or may_fail == "true", (line, done[-1])
    return done


def test_own_logs_reach_a_query_are_changed_and_erased_as_the_page_says(reader: Prism) -> None:
    run(reader, "2")
    (drafted,) = run(reader, "3")
    assert "tables/log/signups.yaml" in drafted.out
    file = Path("tables/log/signups.yaml")
    assert "  - {name: user_id, type: bigint" in file.read_text()

    (tried,) = run(reader, "4")
    assert "5 rows, 0 filtered, 1 quarantined" in tried.out
    assert tried.status == 1

    run(reader, "5")
    counted, selected, status, aside = run(reader, "6")
    assert "5" in words_of(counted)
    assert [word for word in words_of(selected) if word.isdigit()] == ["3", "4", "5"]
    assert "log.signups" in status.out
    assert "bad_json" in aside.out

    edit(file)
    planned, _ = run(reader, "7")
    for change in ("add column referrer", "rename column user_id", "drop column agent"):
        assert change in planned.out
    looked, erased, state = run(reader, "8")
    assert "1 row" in looked.out
    assert erased.status == 0
    assert "log.signups" in state.out
    doctor, _ = run(reader, "9")
    assert "nothing is wrong" in doctor.out


def words_of(done: Done) -> list[str]:
    """Returns the words of a table on a terminal, without the border lines."""
    return re.sub(r"[^\w/ -]", " ", done.out).split()


def edit(file: Path) -> None:
    """Edits the table file as the page says: lines to add, to replace, and to delete."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```", SECTIONS["7"], re.DOTALL | re.M)
    added, renamed = (line for line in block.splitlines() if line.startswith("  - "))
    former = re.findall(r"was: (\w+)", renamed)[0]
    dropped = re.findall(r"# drop (\w+)", block)[0]
    text = file.read_text()
    for name, line in ((former, renamed + "\n" + added), (dropped, "")):
        text, count = re.subn(rf"^  - {{name: {name},.*$", line, text, flags=re.MULTILINE)
        assert count == 1, name
    file.write_text(text)
