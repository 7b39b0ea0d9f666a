"""Compressed objects, sound and not. Nothing of an object that is not sound becomes a row."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard

from prism_assets.kernels import convert
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object

TABLE = a_table(a_column("v", "string", 2))
CONTENT = an_object(*({"v": f"value {number}"} for number in range(2000)))
GZIP = gzip.compress(CONTENT)
ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(CONTENT)
WRONG_CRC = GZIP[:-8] + bytes([GZIP[-8] ^ 1]) + GZIP[-7:]


@pytest.mark.parametrize(
    ("content", "copies"),
    [
        (GZIP, 1),
        (GZIP + GZIP, 2),
        (GZIP + bytes(512), 1),
        (GZIP + b"garbage", 1),
        (GZIP + b"\x1f", 1),
        (gzip.compress(b"") + GZIP, 1),
        (ZSTD, 1),
        (ZSTD + ZSTD, 2),
        (zstandard.ZstdCompressor().compress(CONTENT), 1),
        (b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + ZSTD, 1),
        (ZSTD + b"garbage", 1),
        (b"".join(gzip.compress(CONTENT[at : at + 999]) for at in range(0, len(CONTENT), 999)), 1),
        (CONTENT, 1),
    ],
)
def test_content_tells_how_it_is_compressed(lake: Lake, content: bytes, copies: int) -> None:
    outcome = lake.convert(content, TABLE)
    assert (outcome.result.rows_out, outcome.result.lines_in) == (2000 * copies, 2000 * copies)


@pytest.mark.parametrize("content", [gzip.compress(b""), zstandard.compress(b""), b""])
def test_an_empty_object_has_no_lines_and_writes_nothing(lake: Lake, content: bytes) -> None:
    outcome = lake.convert(content, TABLE)
    assert outcome.result.failure is None
    assert (outcome.result.lines_in, outcome.stored) == (0, {})


@pytest.mark.parametrize(
    ("content", "reason", "lines"),
    [
        (GZIP[: len(GZIP) // 2], "gzip_truncated", range(500, 1999)),
        (GZIP[:-1], "gzip_truncated", [2000]),
        (GZIP[:5], "gzip_truncated", [0]),
        (WRONG_CRC, "gzip_crc", [2000]),
        (GZIP + WRONG_CRC, "gzip_crc", [4000]),
        (ZSTD[:-1], "gzip_truncated", [2000]),
        (ZSTD[:-1] + bytes([ZSTD[-1] ^ 1]), "gzip_crc", [2000]),
    ],
)
def test_all_decodable_lines_of_an_unsound_object_are_set_aside(
    lake: Lake, content: bytes, reason: str, lines: range | list[int]
) -> None:
    outcome = lake.both(content, TABLE)
    assert (outcome.result.failure, outcome.rows) == (None, [])
    assert list(outcome.reasons) == [reason]
    assert outcome.result.lines_in == outcome.reasons[reason] == len(outcome.quarantined)
    assert outcome.result.lines_in in lines
    texts = [record["text"] for record in outcome.quarantined]
    assert CONTENT.decode().startswith("\n".join(texts[:2000]))


def test_an_object_that_is_damaged_in_the_middle_gives_no_row(lake: Lake) -> None:
    half = len(GZIP) // 2
    outcome = lake.both(GZIP[:half] + b"\xff" * 99 + GZIP[half:], TABLE)
    assert list(outcome.reasons) == ["gzip_crc"]
    assert outcome.result.lines_in == outcome.reasons["gzip_crc"] >= 500
    assert outcome.rows == []


def test_a_bomb_is_stopped(lake: Lake) -> None:
    bomb = gzip.compress(b" " * 99 + b"\n" + bytes(90 << 20), 9)
    outcome = lake.convert(bomb, TABLE)
    assert outcome.reasons == {"ratio_exceeded": 1}
    assert outcome.quarantined[0]["length"] < 80 << 20


def test_of_an_object_that_changed_nothing_is_read_and_its_version_is_told(lake: Lake) -> None:
    outcome = lake.convert(CONTENT, TABLE, etag='"another"')
    assert (outcome.result.failure, outcome.result.lines_in, outcome.stored) == (None, 0, {})
    assert outcome.result.changed is not None
    found = lake.stores.head("staging", "in/7.json")
    assert (outcome.result.changed.etag, outcome.result.changed.content_length) == (found.etag, len(CONTENT))


def test_an_object_that_vanished_is_a_terminal_failure(lake: Lake, tmp_path: Path) -> None:
    assert lake.convert(CONTENT, TABLE).result.failure is None
    (tmp_path / "staging/in/7.json").unlink()
    missing = lake.convert_again(TABLE)
    assert missing.failure is not None
    assert not missing.failure.transient


def test_big_objects_are_read_in_chunks_with_the_same_result(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lake.convert(GZIP, TABLE)
    monkeypatch.setattr(convert, "STREAMED", 100)
    assert lake.convert(GZIP, TABLE).comparable() == whole.comparable()


def test_blocks_do_not_show_in_the_result(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    content = an_object(*({"v": "日本語" * 9} if number % 7 else "bad" for number in range(3000)))
    whole = lake.convert(content, TABLE)
    monkeypatch.setattr("prism_assets.kernels.inflate.PIECE", 1000)
    assert lake.convert(content, TABLE).comparable() == whole.comparable()


def test_the_same_object_gives_the_same_bytes(lake: Lake) -> None:
    content = an_object(*({"v": str(number)} if number % 9 else "bad" for number in range(3000)))
    assert lake.convert(content, TABLE).stored == lake.convert(content, TABLE).stored
