"""Objects are cut into blocks of whole lines, which know the numbers and the places of their lines."""

from __future__ import annotations

import pytest

from prism_assets.kernels.json.blocks import LINE_LIMIT, Block, LongLine, split

_CONTENT = b"".join(b'{"n":%d}\n\r\n%s\n' % (number, b"x" * (number % 90)) for number in range(3_000))


@pytest.mark.parametrize("size", [1, 1_000, 1 << 16, 100_003, len(_CONTENT)])
def test_blocks_know_the_number_of_their_first_line_whatever_the_pieces(size: int) -> None:
    content = _CONTENT[: 2_000 * size]
    parts = list(split(content[start : start + size] for start in range(0, len(content), size)))
    at = 0
    for part in parts:
        assert isinstance(part, Block)
        assert (part.offset, part.first_line) == (at, content[:at].count(b"\n") + 1)
        at += len(part.data)
    assert b"".join(part.data for part in parts if isinstance(part, Block)) == content


def test_a_long_line_counts_as_one_between_blocks() -> None:
    pieces = [b"1\n\n3\n", b"x" * LINE_LIMIT, b"x\n", b"5\n6\n", b"7"]
    numbers = [part.line if isinstance(part, LongLine) else part.first_line for part in split(pieces)]
    assert numbers == [1, 4, 5, 7]
