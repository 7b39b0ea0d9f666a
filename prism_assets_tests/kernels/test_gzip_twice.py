"""gzip within gzip: Firehose compresses again what CloudWatch Logs sends. The checks hold for both layers."""

from __future__ import annotations

import gzip
import random

import pytest
import zstandard

from prism_assets.kernels.inflate import Inflation, UnsoundError, salvage
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object

DRAW = random.Random(39)
TABLE = a_table(a_column("v", "string", 2))
LINES = an_object(*({"v": f"value {number} {DRAW.random()}"} for number in range(2000)))
INNER = gzip.compress(LINES[: len(LINES) // 2]) + gzip.compress(LINES[len(LINES) // 2 :])


def twice(inner: bytes) -> bytes:
    return gzip.compress(inner)


@pytest.mark.parametrize("outer", [gzip.compress, zstandard.compress])
def test_all_members_of_the_inner_layer_are_read(lake: Lake, outer: object) -> None:
    assert callable(outer)
    outcome = lake.both(outer(INNER), TABLE)
    assert (outcome.result.rows_out, outcome.reasons) == (2000, {})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (twice(INNER[:-5]), "truncated"),
        (twice(INNER[:-8] + bytes(4) + INNER[-4:]), "bad_crc"),
        (twice(INNER)[:-5], "truncated"),
        (twice(INNER)[:-8] + bytes(8), "bad_crc"),
    ],
    ids=["inner cut", "inner CRC", "outer cut", "outer CRC"],
)
def test_damage_of_either_layer_sets_all_lines_aside(lake: Lake, content: bytes, reason: str) -> None:
    outcome = lake.both(content, TABLE)
    assert outcome.result.rows_out == 0
    assert outcome.reasons == {reason: 2000}


def test_bytes_after_the_inner_layer_are_set_aside_and_zeros_are_told(lake: Lake) -> None:
    outcome = lake.both(twice(INNER + b"rest"), TABLE)
    assert (outcome.result.rows_out, outcome.reasons) == (2000, {"trailing_garbage": 1})
    assert outcome.quarantined[0]["offset"] == len(INNER)
    outcome = lake.both(twice(INNER + bytes(512)), TABLE)
    assert (outcome.result.rows_out, outcome.reasons) == (2000, {"zero_padding": 0})


def test_the_inner_layer_has_a_ratio_of_its_own(lake: Lake) -> None:
    outcome = lake.convert(twice(gzip.compress(b"{}" + b" " * (66 << 20))), TABLE)
    assert outcome.reasons.keys() == {"ratio_exceeded"}


def test_both_layers_together_have_the_ratio_of_one() -> None:
    """Equal members within a layer compress once more, so two layers may each give less than 200 times their bytes."""
    spaces = bytes(DRAW.choices(b" \t", k=60_000)) + b" " * 540_000
    member, count = gzip.compress(b"{%b}\n" % spaces), 130
    content = twice(member * count)
    assert 200 * len(member) > len(spaces)
    assert 200 * len(content) > count * len(member)
    with pytest.raises(UnsoundError) as unsound:
        list(Inflation([content]))
    assert unsound.value.reason == "ratio_exceeded"
    assert sum(map(len, salvage([content], unsound.value.offset))) < count * len(spaces)
