"""From a sample of foreign logs to readable rows, without a manual edit of the file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import zstandard

from prism_assets.domain.errors import WrongUse
from prism_assets.drafting.draft import Draft, draft_file
from prism_assets.drafting.sample_lines import find_objects, read_sample
from prism_assets.drafting.trial import read_table, try_table
from prism_assets.objectstore.config import StoreConfig
from prism_assets_tests.drafting.logs import FORMS, NOW, lines_of
from prism_assets_tests.world import World

NOWHERE = StoreConfig(local_root="/nowhere")
ARRIVES = "s3://staging/events/"


def drafted(root: Path, content: bytes, **options: Any) -> Draft:
    sample = root / "sample"
    sample.write_bytes(content)
    given = {"url": ARRIVES, "folder": root / "tables", "now": NOW, **options}
    return draft_file(NOWHERE, "log.events", str(sample), **given)


@pytest.mark.parametrize("form", FORMS)
def test_logs_of_a_stranger_can_be_read_with_no_hand_on_the_draft(world: World, tmp_path: Path, form: str) -> None:
    body = lines_of(form)
    arrives = datetime.now(timezone.utc)  # its object is as old as its file
    draft = drafted(tmp_path, body, url="s3://staging/events/", now=arrives)
    assert draft.path is not None
    trial = try_table(NOWHERE, read_table(draft.path), str(tmp_path / "sample"), now=arrives)
    assert (trial.rows, trial.quarantined, trial.problem) == (600, {}, None)
    world.apply()
    world.drop([], body=body)
    world.stream("2026-03-01T12:00")
    world.catalog("2026-03-01T12:00")
    assert world.query("SELECT count(*) FROM log.events") == [(600,)]


def with_times(**odd: Any) -> bytes:
    """Returns 400 lines with three times. Each hundredth time is odd where `odd` gives one."""
    plain = {"time": "2026-03-01T10:00:00Z", "ended": "2026-03-01T11:00:00Z", "closed_at": 1772362800123}
    lines = (plain | (odd if number % 100 == 0 else {}) for number in range(400))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def times_read(world: World, body: bytes) -> tuple[set[str], set[str]]:
    """Returns the values of the two columns with times beside the row's time, by the draft for the lines."""
    arrives = datetime.now(timezone.utc)  # its object is as old as its file
    world.apply(drafted(world.root, body, url="s3://staging/events/", folder=None, now=arrives).text)
    world.drop([], body=body)
    world.stream("2026-03-01T12:00")
    world.catalog("2026-03-01T12:00")
    rows = world.query("SELECT DISTINCT ended::text, closed_at::text FROM log.events")
    return {ended for ended, _ in rows}, {closed for _, closed in rows}


@pytest.mark.parametrize("odd", [0, "0", -1, "1e3"])
def test_no_number_among_times_becomes_another_time(world: World, odd: Any) -> None:
    ended, closed = times_read(world, with_times(ended=odd, closed_at=odd))
    assert ended == {"2026-03-01T11:00:00Z", str(odd)}
    assert closed == {"1772362800123", str(odd)}


def test_seconds_among_milliseconds_are_the_times_that_they_mean(world: World) -> None:
    ended, closed = times_read(world, with_times(ended=1772362800, closed_at=1772362800))
    assert ended == {"2026-03-01 11:00:00+00"}
    assert closed == {"2026-03-01 11:00:00+00", "2026-03-01 11:00:00.123+00"}


@pytest.mark.parametrize("odd", [0, "0", -1, "1e3", "x", {"a": 1}, []])
def test_lines_that_have_no_time_where_others_have_theirs_are_set_aside(tmp_path: Path, odd: Any) -> None:
    draft = drafted(tmp_path, with_times(time=odd, ended=None, closed_at=None))
    assert draft.path is not None
    table = read_table(draft.path)
    assert table.partition_column == "time"
    trial = try_table(NOWHERE, table, str(tmp_path / "sample"), now=NOW)
    assert (trial.rows, sum(trial.quarantined.values())) == (396, 4)


def test_the_file_is_written_where_apply_finds_it_and_none_is_written_over(tmp_path: Path) -> None:
    draft = drafted(tmp_path, lines_of("nginx", 10))
    assert draft.path == tmp_path / "tables" / "log" / "events.yaml"
    assert draft.path.read_text() == draft.text
    with pytest.raises(WrongUse, match="exists already"):
        drafted(tmp_path, lines_of("trail", 10))
    assert draft.path.read_text() == draft.text


def test_where_objects_arrive_is_said_and_not_guessed_for_a_sample_on_this_machine(tmp_path: Path) -> None:
    assert f'url: "{ARRIVES}"' in drafted(tmp_path, lines_of("nginx", 10), folder=None).text
    with pytest.raises(WrongUse, match=r"such as --url s3://BUCKET/events/; nothing was written"):
        drafted(tmp_path, lines_of("nginx", 10), url=None)
    assert not (tmp_path / "tables").exists()


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    draft = drafted(tmp_path, lines_of("nginx", 10), folder=None)
    assert draft.path is None
    assert [path.name for path in tmp_path.iterdir()] == ["sample"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_sample_may_be_compressed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    body = lines_of("nginx", 50)
    assert drafted(tmp_path, pack(body), folder=None).text == drafted(tmp_path, body, folder=None).text


def test_a_sample_that_ends_in_the_middle_says_what_its_whole_lines_say(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    sample.write_bytes(gzip.compress(lines_of("nginx", 500))[:-40])
    lines = read_sample(str(sample), find_objects(str(sample), NOWHERE)).lines
    assert 400 < len(lines) < 500
    assert list(lines) == lines_of("nginx", 500).splitlines()[: len(lines)]


def test_objects_that_end_early_or_are_damaged_are_told_as_no_line_of_theirs_would_be_a_row(tmp_path: Path) -> None:
    sound = gzip.compress(lines_of("nginx", 500), mtime=0)
    damaged = sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:]
    folder = tmp_path / "sample"
    folder.mkdir()
    for name, content in {"cut": sound[:-40], "cut too": sound[:-80], "damaged": damaged, "sound": sound}.items():
        (folder / name).write_bytes(content)
    draft = draft_file(NOWHERE, "log.events", str(folder), url=ARRIVES, folder=tmp_path / "tables", now=NOW)
    assert draft.unsound == {"truncated": 2, "bad_crc": 1}
    assert draft.text.splitlines()[0].endswith(
        "; of 2 objects no line would be a row: truncated; of 1 object no line would be a row: bad_crc."
    )
    assert draft.path is not None
    trial = try_table(NOWHERE, read_table(draft.path), str(folder), now=NOW)
    assert (trial.rows, set(trial.quarantined)) == (500, {"truncated", "bad_crc"}), "as they are told"


def test_a_sample_without_a_line_before_its_damage_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="holds no line: truncated; take a sample that is not damaged"):
        drafted(tmp_path, gzip.compress(lines_of("nginx", 5))[:20])


def test_all_files_of_a_folder_are_one_sample(tmp_path: Path) -> None:
    for number, form in enumerate(["nginx", "trail"]):
        (tmp_path / f"{number}.jsonl").write_bytes(lines_of(form, 10))
    assert draft_file(NOWHERE, "log.events", str(tmp_path), url=ARRIVES, folder=None, now=NOW).objects == 2


def test_objects_below_a_prefix_are_a_sample_and_more_like_them_are_expected_there(world: World) -> None:
    world.apply(drafted(world.root, lines_of("nginx", 10), url="s3://staging/events/", folder=None).text)
    world.drop([], body=lines_of("nginx", 20))
    config = world.context.stores.config
    found = draft_file(config, "log.more", "s3://staging/events/2026/", url=None, folder=None, now=NOW)
    assert (found.lines, found.objects) == (20, 1)
    assert 'url: "s3://staging/events/2026/"' in found.text
    with pytest.raises(WrongUse, match="there is no object, and none below it"):
        draft_file(config, "log.more", "s3://staging/nothing/", url=None, folder=None, now=NOW)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no line"),
        (b"\n \n", "holds no line"),
        (bytes(range(256)) * 100, "none of its lines is a JSON object"),
        (b"[\n1,\n2\n]\n", "none of its lines is a JSON object"),
        (b'{"a": 1}\n', "no key of the sample holds times"),
    ],
)
def test_what_is_no_sample_is_refused_with_what_to_do(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(WrongUse) as error:
        drafted(tmp_path, content)
    assert said in str(error.value)


def test_a_name_that_is_none_and_a_file_that_is_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is no table name"):
        draft_file(NOWHERE, "Events", str(tmp_path), url=None, folder=None, now=NOW)
    with pytest.raises(WrongUse, match="--sample is empty; name a file, a folder or"):
        draft_file(NOWHERE, "log.events", "", url=None, folder=None, now=NOW)
    with pytest.raises(WrongUse, match="there is no such file"):
        draft_file(NOWHERE, "log.events", str(tmp_path / "nothing"), url=None, folder=None, now=NOW)


@pytest.fixture
def sparse(tmp_path: Path) -> Iterator[Path]:
    """A file with one line of 2 GB that takes no space on disk."""
    path = tmp_path / "line"
    with path.open("wb") as file:
        file.truncate(2 << 30)
    yield path
    path.unlink()


def test_of_a_line_without_an_end_only_so_much_is_read(sparse: Path) -> None:
    with pytest.raises(WrongUse, match="1 line_too_long"):
        draft_file(NOWHERE, "log.events", str(sparse), url=ARRIVES, folder=None, now=NOW)


def test_lines_of_a_large_sample_are_chosen_evenly(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"".join(b'{"n": %d}\n' % number for number in range(100_000)))
    lines = read_sample(str(path), find_objects(str(path), NOWHERE)).lines
    assert len(lines) == 20_000
    assert (lines[0], lines[-1]) == (b'{"n": 0}', b'{"n": 99999}')
