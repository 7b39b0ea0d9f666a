"""Plain lines as messages, so that a table of a topic is tried on a sample before the topic is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from prism_assets.kernels.json.blocks import Block, LongLine, count_line_ends
from prism_assets.kernels.json.picks import Around
from prism_assets.kernels.messages.columns import outer_values
from prism_assets.kernels.messages.facts import MessageFacts
from prism_assets.kernels.messages.spool_file import SCHEMA


def as_messages(
    parts: Iterable[Block | LongLine], topic: str, received: datetime, around: Around
) -> Iterator[Block | LongLine]:
    """Yields lines with the facts of messages of partition 0, which were produced when the object was received.

    Their offsets begin at 0. They have no key and no headers.
    """
    time = int(received.timestamp() * 1000)
    for part in parts:
        if isinstance(part, Block):
            facts = MessageFacts(part.first_line, _rows(part, time), topic)
            part = replace(part, messages=facts, outer=outer_values(facts, around))
        yield part


def _rows(block: Block, time: int) -> pa.Table:
    count = count_line_ends(block.data) + (not block.data.endswith(b"\n"))
    first = block.first_line - 1
    columns = {
        "partition": pa.repeat(0, count).cast(pa.int32()),
        "offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
        "timestamp": pa.repeat(time, count).cast(SCHEMA.field("timestamp").type),
    }
    return pa.Table.from_arrays(
        [columns[name] if name in columns else pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names],
        schema=SCHEMA,
    )
