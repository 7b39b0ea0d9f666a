"""Records lie in the order of their keys, whatever the first bytes of these tell."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from prism_assets.kernels.records.ordering import record_order

TEXTS = ("", "a", "a\0", "ä" * 3, "ä" * 5, "same start", "same start 1", "same sta", "same stb", "\U0001f600")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_are_ordered_by_their_bytes_then_by_the_other_keys(kind: pa.DataType) -> None:
    chance = random.Random(5)
    rows = [(chance.randint(0, 3), chance.choice(TEXTS), chance.randint(-2, 2)) for _ in range(500)]
    parts, texts, numbers = zip(*rows, strict=True)
    cut = pa.concat_arrays([pa.array(["left out"], kind), pa.array(texts[:200], kind)])[1:]
    columns = [pa.chunked_array([cut, pa.array(texts[200:], kind)]), pa.chunked_array([pa.array(numbers)])]
    order = record_order(np.array(parts), columns)

    def place(number: int) -> tuple[Any, ...]:
        part, text, value = rows[number]
        return part, text.encode(), value, number

    assert order.tolist() == sorted(range(len(rows)), key=place)


def test_numbers_may_be_keys_and_there_may_be_no_rows() -> None:
    column = pa.chunked_array([pa.array([3, -1, 2])])
    assert record_order(np.zeros(3, np.int64), [column]).tolist() == [1, 2, 0]
    for nothing in (pa.chunked_array([], pa.string()), pa.chunked_array([], pa.int64())):
        assert record_order(np.zeros(0, np.int64), [nothing]).tolist() == []
