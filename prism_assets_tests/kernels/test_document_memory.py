"""Reading documents takes bounded memory, also for damaged ones and for large values around small records."""

from __future__ import annotations

import tracemalloc

import pytest

from prism_assets.domain.streams.documents import OuterKey, record_steps
from prism_assets.domain.streams.sources import Outer, parse_source
from prism_assets.kernels.documents.scanner import Broken, Scanner
from prism_assets.kernels.documents.splitter import MakeScanner, make_scanner, split_documents
from prism_assets.kernels.json.blocks import Block
from prism_assets_tests.kernels.test_documents import lines_of, split


@pytest.mark.parametrize("letter", ["o", "\N{HIRAGANA LETTER O}"])
@pytest.mark.parametrize("make", [Scanner, make_scanner()], ids=["Python", "compiled"])
def test_a_block_ends_before_copies_of_the_values_around_its_records_fill_the_memory(
    make: MakeScanner, letter: str
) -> None:
    """Rows go to disk between blocks: the copies of one block are in memory beside all rows held until then."""
    value = letter * 300_000
    around = b'"owner":"%s"' % value.encode()
    content = b'{"Records":[%s],%s}{"Records":[{"id":-1}]}' % (
        b",".join(b'{"id":%d}' % number for number in range(300)),
        around,
    )
    sources = [source for text in ["$outer.owner"] if isinstance(source := parse_source(text), Outer)]
    parts = list(split_documents([content], record_steps("$.Records[*]"), sources, make=make))
    blocks = [list(lines_of(part)) for part in parts if isinstance(part, Block)]
    got = [item for block in blocks for item in block]
    assert [item.number for item in got] == list(range(1, 302))
    assert [item.id for item in got] == [*range(300), -1]
    assert {item.outer == (f'"{value}"',) for item in got[:-1]} == {True}
    assert got[-1].outer == ("",)
    sizes = [sum(len(text.encode()) for item in block for text in item.outer or ()) for block in blocks]
    assert max(sizes) <= 8 << 20


def test_no_value_around_records_is_held_above_1_mib() -> None:
    content = b'{"fits":"%s","long":"%s","r":[{}' % (b"x" * ((1 << 20) - 2), b"x" * (1 << 20))
    for make in (Scanner, make_scanner()):
        scanner = make(record_steps("$.r[*]"), [OuterKey(0, "fits"), OuterKey(0, "long")])
        scanner.scan(content, 0)
        [(step, (fits, long))] = scanner.abandon()
        assert isinstance(fits, bytes)
        assert (step, len(fits), long) == (0, 1 << 20, Broken.TOO_LONG)


def test_damage_by_damage_no_more_than_a_few_buffers_are_in_memory() -> None:
    content = b'{"t":"x\n' * 60 + b'{"t":"' + b"y" * (8 << 20) + b'"}\n{"a":1}\n'
    tracemalloc.start()
    try:
        got = split(content, "$", size=9 << 20, make=make_scanner())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(got) == 62
    assert most < 96 << 20, f"{most >> 20} MiB at once"
