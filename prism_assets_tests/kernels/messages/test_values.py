"""Values of messages, many at once, give what they give one by one. Arrays may begin within a larger one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.kernels.messages.values import Values

LISTS = st.lists(st.sampled_from([None, b"", b" ", b"{}", b"\x00a", b"a\nb", b"\xff", b"[1,2]"]), max_size=9)


@given(LISTS, st.integers(0, 4), st.integers(0, 4))
def test_a_part_of_an_array_is_read_as_its_values(items: list[bytes | None], before: int, after: int) -> None:
    whole = pa.array(items, pa.binary())
    values = Values(whole.slice(before, max(0, len(whole) - before - after)))
    held = items[before : max(before, len(items) - after)]
    assert values.items == held
    assert values.lengths.tolist() == [len(item or b"") for item in held]
    assert bytes(values.heads) == b"".join((item or b" ")[:1] for item in held)
    assert values.tombstones == [place for place, item in enumerate(held) if item is None]
    assert [values.at(place) for place in range(len(held))] == [item or b"" for item in held]


@given(LISTS)
def test_values_are_joined_if_each_is_one_line(items: list[bytes | None]) -> None:
    lines = [item for item in items if item is not None and item[:1] > b" " and b"\n" not in item]
    is_sound = bool(items) and len(lines) == len(items)
    assert Values.of(items).joined() == (b"\n".join([*lines, b""]) if is_sound else None)
