"""Checks of topics of Kafka: gapless offsets, and lag."""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, span
from prism_assets.metadata.kafka.audit import OffsetSums, sum_last_ranges
from prism_assets.metadata.kafka.lag import TopicLag, load_lags
from prism_assets.stages.checks.outcomes import Check, CheckOutcome, Figures, failed, few, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.topics import topic_tables

OFFSETS_CONTIGUOUS, LAG = "offsets_contiguous", "lag"
_RANGES = 1_000
"""The ranges of a partition that a run adds up. Doctor adds up all."""
_NO_TOPIC = "the table reads no topic"


def check_offsets_contiguous(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether the last ranges of each partition hold every offset up to its position, once."""
    with context.database.begin() as connection:
        found = sum_last_ranges(connection, topic_tables(request.tables), _RANGES)
    return [
        _judge_offsets(table, [item for item in found if item.table_id == table.table_id]) for table in request.tables
    ]


def _judge_offsets(table: TableDefinition, sums: Sequence[OffsetSums]) -> CheckOutcome:
    if not sums:
        return passed(table, OFFSETS_CONTIGUOUS, "no worker has registered a topic")
    offsets, ranges = sum(item.offsets for item in sums), sum(item.ranges for item in sums)
    wrong = [item for item in sums if item.missing]
    figures: Figures = {
        "partitions": len(sums),
        "ranges": ranges,
        "offsets": offsets,
        "partitions out of balance": len(wrong),
    }
    if not wrong:
        sentence = (
            f"the last {counted(ranges, 'range')} of {counted(len(sums), 'partition')} hold "
            f"{counted(offsets, 'offset')}, each once"
        )
        return passed(table, OFFSETS_CONTIGUOUS, sentence, figures)
    parts = [
        f"partition {item.partition} of {item.topic} stands at {item.next_offset}, and its ranges from "
        f"{item.from_offset} hold {item.offsets} of {item.next_offset - item.from_offset} offsets"
        for item in wrong
    ]
    sentence = f"offsets are lost or doubled: {few(parts)}. Keep all objects, run nothing that deletes, and report it"
    return failed(table, OFFSETS_CONTIGUOUS, sentence, figures)


def check_lag(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether messages wait longer than the limit of the table, by the figures of the workers."""
    with context.database.begin() as connection:
        found = load_lags(connection, topic_tables(request.tables))
    return [
        _judge_lag(table, [item for item in found if item.table_id == table.table_id], request.limits_of(table))
        for table in request.tables
    ]


def _judge_lag(table: TableDefinition, topics: Sequence[TopicLag], limits: CheckLimits) -> CheckOutcome:
    """A partition that no worker reads has old figures. The check `topics_read` reports it."""
    if not topics:
        return passed(table, LAG, _NO_TOPIC)
    seconds = max((topic.lag_seconds or 0.0 for topic in topics), default=0.0)
    offsets = sum(topic.lag_offsets for topic in topics)
    limit = 60 * limits.lag_minutes
    figures: Figures = {"offsets": offsets, "seconds": round(seconds, 1), "limit in seconds": limit}
    if seconds <= limit:
        what = f"{counted(offsets, 'offset waits', 'offsets wait')}, the longest for {span(round(seconds))}"
        return passed(table, LAG, what if offsets else "every message was read when the workers last looked", figures)
    late = sorted(topics, key=lambda topic: -(topic.lag_seconds or 0.0))
    parts = [
        f"{topic.url} is {counted(topic.lag_offsets, 'offset')} and {span(round(topic.lag_seconds or 0.0))} behind"
        for topic in late
        if (topic.lag_seconds or 0.0) > limit
    ]
    sentence = (
        f"{few(parts)} (limit {span(limit)}): start more workers, up to one for each partition, or see "
        f"`prism kafka status {table.name}`"
    )
    return failed(table, LAG, sentence, figures)


CHECKS = (
    Check(
        name=OFFSETS_CONTIGUOUS,
        asset="live",
        about="Every offset of each partition, from the start to the position, is in one range.",
        evaluate=check_offsets_contiguous,
        is_error=True,
        blocking=True,
        of_topics=True,
    ),
    Check(
        name=LAG,
        asset="live",
        about="No message waits for its worker longer than the limit.",
        evaluate=check_lag,
        of_topics=True,
    ),
)
