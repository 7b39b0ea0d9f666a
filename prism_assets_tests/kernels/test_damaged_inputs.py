"""Inputs of merges that claim what they do not hold, and a kernel that decodes sound inputs wrongly."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from prism_assets.domain.errors import InvariantBroken
from prism_assets.kernels.parquet.compiled_inputs import CompiledInputs
from prism_assets.kernels.parquet.merge_inputs import Input
from prism_assets_tests.kernels.builders import Lake, needs_kernel
from prism_assets_tests.kernels.test_write import TABLE, small_objects


@needs_kernel
def test_sound_inputs_that_the_kernel_decodes_wrongly_are_merged_by_arrow(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    objects = small_objects(lake, 5, 200)
    lake.merge(objects, TABLE, "p/merged/right.parquet")
    decoded = CompiledInputs._decoded

    def wrong(self: CompiledInputs, field: pa.Field, *, coded: bool) -> Any:
        found = decoded(self, field, coded=coded)
        return pc.add(found, 1) if pa.types.is_int64(field.type) else found

    monkeypatch.setattr(CompiledInputs, "_decoded", wrong)
    with caplog.at_level(logging.WARNING):
        result = lake.merge(objects, TABLE, "p/merged/again.parquet")
    assert result.failure is None
    assert "p/merged/again.parquet" in caplog.text
    assert lake.stores.get("lake", "p/merged/again.parquet") == lake.stores.get("lake", "p/merged/right.parquet")


def test_row_groups_with_more_rows_than_their_object_are_refused_before_they_take_memory(lake: Lake) -> None:
    """One number of the footer changes: the rows of the row group."""
    first, *_ = small_objects(lake, 2, 200)
    body = lake.stores.get("lake", first.key)
    length = int.from_bytes(body[-8:-4], "little")
    footer = body[-8 - length : -8]
    place = footer.rindex(_zigzag(200), 0, footer.index(b"parquet-cpp"))
    footer = footer[:place] + _zigzag(3_000_000_000) + footer[place + len(_zigzag(200)) :]
    broken = body[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(InvariantBroken, match="row groups"):
        Input.opened(replace(first, content_length=len(broken)), broken)


def _zigzag(number: int) -> bytes:
    """Returns a positive number as Thrift writes it."""
    left, found = 2 * number, b""
    while left > 127:
        found += bytes([left & 127 | 128])
        left >>= 7
    return found + bytes([left])
