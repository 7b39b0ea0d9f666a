"""Compressed objects, sound and broken. A broken member gives no row, and no byte is lost."""

from __future__ import annotations

import base64
import gzip
import random
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.kernels import inflate
from prism_assets.kernels.inflate import Inflation, UnsoundError, salvage
from prism_assets.objectstore import stores
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object

TABLE = a_table(a_column("v", "string", 2))
CONTENT = an_object(*({"v": f"value {number}"} for number in range(2000)))
GZIP = gzip.compress(CONTENT, mtime=0)
ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(CONTENT)
WRONG_CRC = GZIP[:-8] + bytes([GZIP[-8] ^ 1]) + GZIP[-7:]


@pytest.mark.parametrize(
    ("content", "copies"),
    [
        (GZIP, 1),
        (GZIP + GZIP, 2),
        (gzip.compress(b"", mtime=0) + GZIP, 1),
        (ZSTD, 1),
        (ZSTD + ZSTD, 2),
        (zstandard.ZstdCompressor().compress(CONTENT), 1),
        (b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + ZSTD, 1),
        (b"".join(gzip.compress(CONTENT[at : at + 999], mtime=0) for at in range(0, len(CONTENT), 999)), 1),
        (CONTENT, 1),
    ],
)
def test_content_tells_how_it_is_compressed(lake: Lake, content: bytes, copies: int) -> None:
    outcome = lake.convert(content, TABLE)
    assert (outcome.result.rows_out, outcome.result.lines_in) == (2000 * copies, 2000 * copies)
    assert outcome.reasons == {}


FIELDS = {4: b"\x06\0BC\2\0\x10\0", 8: b"access.log\0", 16: b"a comment\0"}
LONG_FIELDS = {4: b"\xb8\x0b" + bytes(3000), 8: b"n" * 1500 + b"\0", 16: b"c" * 1500 + b"\0"}


def a_member(flags: int, fields: dict[int, bytes]) -> bytes:
    """Returns CONTENT after a header with the RFC 1952 fields of the flags; 2 is the header's checksum."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + b"".join(fields[flag] for flag in fields if flags & flag)
    return header + (zlib.crc32(header).to_bytes(4, "little")[:2] if flags & 2 else b"") + GZIP[10:]


@pytest.mark.parametrize("fields", [FIELDS, LONG_FIELDS], ids=["short", "long"])
@pytest.mark.parametrize("flags", range(0, 32, 2))
def test_any_header_of_a_member_is_read_however_it_arrives(flags: int, fields: dict[int, bytes]) -> None:
    member = a_member(flags, fields)
    assert gzip.decompress(member) == CONTENT
    for cut in (*range(30), len(member) - len(GZIP) + 9):
        assert b"".join(Inflation([member[:cut], member[cut:]])) == CONTENT
        assert b"".join(Inflation([GZIP + member[:cut], member[cut:] + GZIP])) == 3 * CONTENT


@pytest.mark.parametrize("flags", [2, 8 | 16, 2 | 4 | 8])
def test_an_unsound_member_with_any_header_is_told_as_others_are(lake: Lake, flags: int) -> None:
    member = a_member(flags, LONG_FIELDS)
    wrong = member[:-8] + bytes([member[-8] ^ 1]) + member[-7:]
    for content, reason, lines in (
        (member[:-1], "truncated", 2000),
        (member[:11], "truncated", 0),
        (wrong, "bad_crc", 2000),
        (member + WRONG_CRC, "bad_crc", 4000),
    ):
        outcome = lake.both(content, TABLE)
        assert (outcome.reasons, outcome.rows) == ({reason: lines}, [])


BEHIND = {
    "text": b"garbage\n",
    "half a magic number": b"\x1f",
    "a member whose magic number is damaged": b"\x1e" + GZIP[1:],
    "a member behind zeros": bytes(512) + GZIP,
    "a frame whose magic number is damaged": b"\x29" + ZSTD[1:],
    "zeros and text": bytes(3000) + b"x",
    "lines": CONTENT[:500],
}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("sound", [GZIP, GZIP + GZIP, ZSTD], ids=["gzip", "two members", "zstd"])
def test_what_follows_the_last_member_is_set_aside_and_the_rows_stay(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, sound: bytes, name: str
) -> None:
    monkeypatch.setattr(inflate, "GARBAGE_PIECE", 999)
    outcome = lake.both(sound + BEHIND[name], TABLE)
    result, pieces = outcome.result, -(-len(BEHIND[name]) // 999)
    assert (result.failure, result.rows_out) == (None, 4000 if sound == GZIP + GZIP else 2000)
    assert outcome.reasons == {"trailing_garbage": pieces}
    assert result.lines_in == result.rows_out + result.lines_quarantined
    assert b"".join(map(content_of, outcome.quarantined)) == BEHIND[name]
    offsets = [record["offset"] for record in outcome.quarantined]
    assert offsets == [len(sound) + 999 * number for number in range(pieces)]


def content_of(record: dict[str, str]) -> bytes:
    return base64.b64decode(record["base64"]) if "base64" in record else record["text"].encode()


@pytest.mark.parametrize("sound", [GZIP, ZSTD, gzip.compress(b"", mtime=0)], ids=["gzip", "zstd", "empty"])
@pytest.mark.parametrize("zeros", [1, 512, 9 << 20])
def test_zeros_behind_the_last_member_are_told_and_harmless(lake: Lake, sound: bytes, zeros: int) -> None:
    outcome = lake.both(sound + bytes(zeros), TABLE)
    assert outcome.reasons == {"zero_padding": 0}
    assert outcome.result.lines_in == outcome.result.rows_out == (0 if len(sound) < 99 else 2000)
    assert outcome.result.quarantine_key is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([b"a\n" * 50, b"b", b""]), min_size=1, max_size=4), st.sampled_from([0, 1, 70_000]))
def test_content_and_rest_are_what_gzip_says_however_the_object_is_cut(members: list[bytes], zeros: int) -> None:
    sound = b"".join(map(gzip.compress, members)) + bytes(zeros)
    for cut in (3, 4096, 1 << 20):
        for behind in (b"", b"\x1f", b"rest"):
            whole = sound + behind
            inflation = Inflation(whole[at : at + cut] for at in range(0, len(whole), cut))
            assert b"".join(inflation) == b"".join(members)
            rest = b"".join(garbage.content for garbage in inflation.garbage())
            assert (rest, inflation.padding) == ((bytes(zeros) + behind, 0) if behind else (b"", zeros))


def test_gzip_takes_a_member_behind_zeros_for_garbage_too() -> None:
    read = subprocess.run(["gzip", "-dc"], input=GZIP + bytes(512) + GZIP, capture_output=True)
    assert read.stdout == CONTENT
    assert b"trailing garbage ignored" in read.stderr


@pytest.mark.parametrize("content", [gzip.compress(b"", mtime=0), zstandard.compress(b""), b""])
def test_an_empty_object_has_no_lines_and_writes_nothing(lake: Lake, content: bytes) -> None:
    outcome = lake.convert(content, TABLE)
    assert outcome.result.failure is None
    assert (outcome.result.lines_in, outcome.stored) == (0, {})


@pytest.mark.parametrize(
    ("content", "reason", "lines"),
    [
        (GZIP[: len(GZIP) // 2], "truncated", range(500, 1999)),
        (GZIP[:-1], "truncated", [2000]),
        (GZIP[:5], "truncated", [0]),
        (WRONG_CRC, "bad_crc", [2000]),
        (GZIP + WRONG_CRC, "bad_crc", [4000]),
        (ZSTD[:-1], "truncated", [2000]),
        (ZSTD[:-1] + bytes([ZSTD[-1] ^ 1]), "bad_crc", [2000]),
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
    assert list(outcome.reasons) == ["bad_crc"]
    assert outcome.result.lines_in == outcome.reasons["bad_crc"] >= 500
    assert outcome.rows == []


# Incompressible lines: several blocks of 128 KiB, which zstd puts into a frame.
DRAW = random.Random(7)
LONG = an_object(*({"v": f"{number} {DRAW.randbytes(40).hex()}"} for number in range(8000)))
FRAMES = [
    pytest.param(zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size).compress(LONG), checksum)
    for checksum in (True, False)
    for size in (True, False)
]
BLOCK = 128 << 10


@pytest.mark.parametrize(("frame", "checksum"), FRAMES)
def test_the_blocks_before_the_end_of_a_truncated_zstd_object_are_kept(
    lake: Lake, frame: bytes, checksum: bool
) -> None:
    for content, before in ((frame[: len(frame) // 2], 0), (frame + frame[: len(frame) // 2], len(LONG))):
        outcome = lake.both(content, TABLE)
        assert (list(outcome.reasons), outcome.rows) == (["truncated"], [])
        assert outcome.result.lines_in == outcome.result.lines_quarantined == len(outcome.quarantined)
        kept = "\n".join(record["text"] for record in outcome.quarantined)
        assert (LONG + LONG).decode().startswith(kept)
        assert len(kept) >= before + len(LONG) // 2 - 2 * BLOCK


@pytest.mark.parametrize(("frame", "checksum"), FRAMES)
def test_the_blocks_before_the_damage_of_a_zstd_object_are_kept(lake: Lake, frame: bytes, checksum: bool) -> None:
    half = len(frame) // 2
    damaged = frame[:half] + b"\xff" * 300_000 + frame[half:]
    outcome = lake.both(damaged, TABLE)
    assert (list(outcome.reasons), outcome.rows) == (["bad_crc"], [])
    assert outcome.result.lines_in == outcome.result.lines_quarantined == len(outcome.quarantined)
    texts = [content_of(record) for record in outcome.quarantined]
    sound = b"\n".join(texts)[: len(LONG) // 2 - 2 * BLOCK]
    assert len(sound) == len(LONG) // 2 - 2 * BLOCK
    assert LONG.startswith(sound)


def test_all_lines_of_a_zstd_frame_with_a_wrong_checksum_are_kept(lake: Lake) -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(LONG)
    outcome = lake.both(frame[:-1] + bytes([frame[-1] ^ 1]), TABLE)
    assert outcome.reasons == {"bad_crc": 8000}


@pytest.mark.parametrize(("frame", "checksum"), FRAMES)
def test_salvage_reads_the_same_from_any_place_before_the_fault_on(frame: bytes, checksum: bool) -> None:
    damaged = frame[: len(frame) // 2] + b"\xff" * 300_000
    with pytest.raises(UnsoundError) as unsound:
        list(Inflation([damaged]))
    sound = [b"".join(salvage([damaged], offset)) for offset in (0, 1000, unsound.value.offset)]
    assert len(set(sound)) == 1
    assert LONG[: len(LONG) // 2 - 2 * BLOCK] in sound[0]


def a_frame_with_window(log: int) -> bytes:
    """Returns the output of `zstd --long=log` for CONTENT from a pipe."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=log)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return frame.compress(CONTENT) + frame.flush()


def test_the_largest_window_that_zstd_reads_unasked_is_read(lake: Lake) -> None:
    assert lake.convert(a_frame_with_window(27), TABLE).result.rows_out == 2000


@pytest.mark.parametrize("before", [b"", ZSTD, b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"], ids=["", "frame", "skippable"])
def test_a_larger_window_is_no_damage_and_the_error_says_what_to_do(lake: Lake, before: bytes) -> None:
    outcome = lake.convert(before + a_frame_with_window(28), TABLE)
    failure = outcome.result.failure
    assert failure is not None
    assert (outcome.stored, outcome.reasons, failure.transient, failure.at_source) == ({}, {}, False, True)
    assert failure.message == (
        "s3://staging/in/7.json: zstd with a window of 256 MiB is not read, as 128 MiB is the most: compress the "
        "object with `zstd --long=27` or less, and write it again"
    )


@pytest.mark.parametrize("before", [b"", ZSTD], ids=["", "frame"])
def test_what_takes_a_dictionary_is_no_damage_and_the_error_says_what_to_do(lake: Lake, before: bytes) -> None:
    dictionary = zstandard.train_dictionary(1 << 10, [b"{'v': %d}" % number * 9 for number in range(500)], dict_id=77)
    compressed = zstandard.ZstdCompressor(dict_data=dictionary).compress(CONTENT)
    outcome = lake.convert(before + compressed, TABLE)
    failure = outcome.result.failure
    assert failure is not None
    assert (outcome.stored, outcome.reasons, failure.transient, failure.at_source) == ({}, {}, False, True)
    assert failure.message == (
        "s3://staging/in/7.json: zstd with a dictionary, of id 77 here, is not read: compress the object without one, "
        "and write it again"
    )


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_a_line_is_too_long_however_its_object_is_compressed(lake: Lake, compress: Callable[[bytes], bytes]) -> None:
    content = an_object({"v": "before"}, {"v": "x" * (20 << 20)}, {"v": "behind"})
    outcome = lake.convert(compress(content), TABLE)
    assert [row["v"] for row in outcome.rows] == ["before", "behind"]
    assert outcome.reasons == {"line_too_long": 1}


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


def test_big_objects_are_read_in_parts_with_the_same_result(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lake.convert(GZIP, TABLE)
    monkeypatch.setattr(stores, "PART", 100)
    assert lake.convert(GZIP, TABLE).comparable() == whole.comparable()


def test_blocks_do_not_show_in_the_result(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    content = an_object(*({"v": "日本語" * 9} if number % 7 else "bad" for number in range(3000)))
    whole = lake.convert(content, TABLE)
    monkeypatch.setattr("prism_assets.kernels.inflate.PIECE", 1000)
    assert lake.convert(content, TABLE).comparable() == whole.comparable()


def test_the_same_object_gives_the_same_bytes(lake: Lake) -> None:
    content = an_object(*({"v": str(number)} if number % 9 else "bad" for number in range(3000)))
    assert lake.convert(content, TABLE).stored == lake.convert(content, TABLE).stored
