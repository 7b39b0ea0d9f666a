"""Inputs of merges that claim what they do not hold, and a kernel that decodes sound inputs wrongly."""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from prism_assets.domain.errors import InvariantBroken
from prism_assets.kernels import fingerprint, write
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.fingerprint import fingerprint_by_columns, fingerprint_of
from prism_assets.kernels.parquet.compiled_inputs import CompiledInputs
from prism_assets.kernels.parquet.format import Encoder
from prism_assets.kernels.parquet.merge_inputs import Input
from prism_assets.kernels.parquet.merged_rows import MergedRows
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


@needs_kernel
def test_a_kernel_with_wrong_fingerprints_blames_no_input(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = small_objects(lake, 5, 200)
    lake.merge(objects, TABLE, "p/merged/right.parquet")
    compiled = fingerprint._compiled
    monkeypatch.setattr(fingerprint, "_compiled", lambda module, batch: compiled(module, batch) + 1)
    result = lake.merge(objects, TABLE, "p/merged/again.parquet")
    assert result.failure is None
    assert lake.stores.get("lake", "p/merged/again.parquet") == lake.stores.get("lake", "p/merged/right.parquet")


def test_a_second_attempt_holds_no_rows_of_the_first_and_its_warning_no_values(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row_groups, checked = MergedRows.row_groups, write._ObjectWrite._checked
    held: list[str] = []

    def failing(self: MergedRows, least: int) -> Any:
        if self._compiled:
            raise pa.ArrowInvalid("Casting 4711-secret would lose data")
        return row_groups(self, least)

    def looking(self: Any, inputs: Any, *, compiled: bool = True) -> Any:
        if not compiled:
            gc.collect()
            held.extend(type(one).__name__ for one in gc.get_objects() if isinstance(one, MergedRows | Encoder))
        return checked(self, inputs, compiled=compiled)

    monkeypatch.setattr(MergedRows, "row_groups", failing)
    monkeypatch.setattr(write._ObjectWrite, "_checked", looking)
    objects = small_objects(lake, 2, 20)
    if loaded_kernel().module is None:
        assert lake.merge(objects, TABLE, "p/merged/again.parquet").failure is not None
        return
    assert lake.merge(objects, TABLE, "p/merged/again.parquet").failure is None
    assert (held, "4711-secret" in caplog.text, "ArrowInvalid" in caplog.text) == ([], False, True)


@needs_kernel
def test_decimals_that_begin_at_an_eighth_byte_have_their_fingerprint() -> None:
    """Rust wants every sixteenth. A mapped file may lay them out so."""
    field = pa.field("d", pa.decimal128(9, 2), metadata={b"PARQUET:field_id": b"1"})
    body = pa.py_buffer(bytes(8) + bytes(range(48)))
    skewed = pa.Array.from_buffers(field.type, 3, [None, body[8:]])
    assert body[8:].address % 16 == 8
    table = pa.Table.from_arrays([skewed], schema=pa.schema([field]))
    assert fingerprint_of(table) == fingerprint_by_columns(table)


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
