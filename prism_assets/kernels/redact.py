"""Takes erased lines out of quarantined lines: matching lines go, undecided ones lose their text.

Only a copy is lost: the staging object still has the line, and its address, the number of the line and the reason stay.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import ExpressionsFailed
from prism_assets.domain.streams.reasons import DUPLICATE_KEY, OF_OBJECTS, UNREAD
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram
from prism_assets.domain.work.convert import QuarantineCount
from prism_assets.domain.work.redact import RedactResult, RedactTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels.convert import LIMITS, read_as
from prism_assets.kernels.erased_lines import AgreedLines, ErasedLines
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.json.blanking import Blanking
from prism_assets.kernels.quarantine import UNMATCHED, PackedLines, unpacked
from prism_assets.kernels.reading import facts_of
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_BLOCK_LINES, _BLOCK_BYTES = 1_000, 4 << 20
"""The most lines, and about the most bytes, in memory at once."""


def redact_lines(task: RedactTask, table: TableDefinition, stores: Stores, lake: Lake) -> RedactResult:
    """Searches the quarantined lines of one staging object, and writes the lines that may stay.

    Nothing is raised for lines that cannot be read: the result has the failure, and nothing was written.
    """
    try:
        return _redacted(task, table, stores, lake)
    except Exception as error:
        return task.failed(failure_of(error, f"{task.key} was looked through"))


def _redacted(task: RedactTask, table: TableDefinition, stores: Stores, lake: Lake) -> RedactResult:
    url = facts_of(task.source)["@object"][0]
    counts: Counter[str] = Counter()
    lines = erased = withheld = 0
    stream = read_as(task.source, table).stream_of(task.source.bucket, task.source.key)
    is_lines = stream is None or stream.format is None
    with (
        closing(PackedLines(LIMITS.quarantine)) as kept,
        _judge_of(task, table, messages=stream is not None and stream.topic is not None) as judge,
    ):
        blocks = _blocks(stores.get_chunks(lake.bucket, task.key), task.key)
        for record, verdict in _judged(judge, blocks, is_lines):
            lines += 1
            if verdict is _Verdict.MATCHES:
                erased += 1
                continue
            if verdict is _Verdict.UNDECIDED:
                withheld += 1
                record = _without_text(record, url)
            counts[record["reason"]] += 1
            if task.output_key is not None:
                kept.add(record)
        left = tuple(QuarantineCount(reason=reason, line_count=count) for reason, count in sorted(counts.items()))
        result = RedactResult(
            staging_object_id=task.task_id, lines=lines, erased=erased, withheld=withheld, left=left, key=None
        )
        if task.output_key is None or not result.changed or not counts:
            return result
        failpoint("erase.before_put_lines")
        stores.put(lake.bucket, task.output_key, kept.finish())
    failpoint("erase.after_put_lines")
    return replace(result, key=task.output_key)


def _judge_of(task: RedactTask, table: TableDefinition, *, messages: bool) -> ErasedLines | AgreedLines:
    # Under both definitions, `@stream` is the name at the conversion.
    rules, facts = task.source.erasures, facts_of(task.source)
    then = read_as(task.source, table)
    blanking = Blanking(RowProgram.of(then), messages=messages)

    def under(definition: TableDefinition, of: Sequence[ErasureRule]) -> ErasedLines:
        return ErasedLines(definition, of, facts, LIMITS.expression_seconds, blanking, messages=messages)

    if task.present is None:
        return under(then, rules)
    now = read_as(task.present.of(task.source), TableDefinition.from_json(task.present.definition))
    known = {column.column_id for column in table.columns}

    def of_now(rule: ErasureRule) -> ErasedLines | None:
        with suppress(ExpressionsFailed):  # the stream left the table file, and a source of the column with it
            return under(now, [rule])
        return None

    return AgreedLines(
        [
            (
                under(then, [rule]) if {column.column_id for column in rule.defined} <= known else None,
                of_now(rule),
            )
            for rule in rules
        ]
    )


class _Verdict(Enum):
    """The verdict on a quarantined line."""

    STAYS = auto()
    MATCHES = auto()
    UNDECIDED = auto()


def _judged(
    judge: ErasedLines | AgreedLines, blocks: Iterable[list[dict[str, Any]]], is_lines: bool
) -> Iterator[tuple[dict[str, Any], _Verdict]]:
    """Judges a block with one query for all lines that the same erasures are known not to match."""
    for part in blocks:
        verdicts = [_Verdict.STAYS] * len(part)
        known: dict[tuple[int, ...], list[tuple[int, bytes]]] = {}
        for place, record in enumerate(part):
            if (text := _text(record)) is None:
                continue
            if _may_hold_more(record, is_lines):
                verdicts[place] = _Verdict.UNDECIDED
            else:
                known.setdefault(tuple(record.get(UNMATCHED, ())), []).append((place, text))
        for unmatched, texts in known.items():
            found = judge.judge([text for _, text in texts], unmatched=unmatched)
            for (place, _), matches, undecided in zip(texts, found.matching, found.undecided, strict=True):
                verdicts[place] = _Verdict.MATCHES if matches else _Verdict.UNDECIDED if undecided else _Verdict.STAYS
        yield from zip(part, verdicts, strict=True)


def _may_hold_more(record: dict[str, Any], is_lines: bool) -> bool:
    """Whether a text is perhaps no record, but a document with records: its own keys say nothing about them."""
    is_second = record["reason"] == DUPLICATE_KEY and record["column"] is None
    return record["reason"] in UNREAD or is_second or (record["reason"] in OF_OBJECTS and not is_lines)


def _blocks(chunks: Iterable[bytes], key: str) -> Iterator[list[dict[str, Any]]]:
    block, size = list[dict[str, Any]](), 0
    for record, length in unpacked(chunks, key):
        block.append(record)
        size += length
        if len(block) == _BLOCK_LINES or size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    yield block


def _text(record: dict[str, Any]) -> bytes | None:
    """The text of a line; None if the record has only its place."""
    if "text" in record:
        return str(record["text"]).encode()
    return base64.b64decode(record["base64"]) if "base64" in record else None


def _without_text(record: dict[str, Any], url: str) -> dict[str, Any]:
    """The record of a line without its text, and with its place."""
    place = {"object": url, "length": record.get("length", len(_text(record) or b""))}
    return {name: value for name, value in record.items() if name not in ("text", "base64", UNMATCHED)} | place
