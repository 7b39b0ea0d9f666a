"""Surveys the keys around the records of documents, in the documents at the beginning of each object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from prism_assets.domain.streams.documents import RecordSteps
from prism_assets.domain.streams.sources import OUTER, step_text
from prism_assets.domain.streams.stream import DocumentFormat
from prism_assets.domain.streams.survey import KeyEvidence, Survey
from prism_assets.domain.tables.yaml_mapping import is_unstorable
from prism_assets.drafting.shape import SAMPLED_DOCUMENTS, SAMPLED_ELEMENTS, Chunks, documents_in, head_of
from prism_assets.kernels.json.picks import elements_of
from prism_assets.kernels.json.rows import EVERY_KEY, Fields, RejectedError, Value, read_line, read_object
from prism_assets.kernels.json.survey import Counting

_MOST_KEYS = 100


def survey_around(sample: Survey, objects: Sequence[Chunks]) -> None:
    """Adds the evidence of keys around the records to a survey of records."""
    steps = sample.format.steps if isinstance(sample.format, DocumentFormat) else ()
    if not steps or steps[0] is None:
        return
    counting = Counting()
    for chunks in objects:
        head = head_of(chunks)
        documents = list(islice(documents_in(head), SAMPLED_DOCUMENTS))
        sample.has_large_documents |= bool(head.strip()) and not documents
        for document in documents:
            try:
                fields = read_line(document, EVERY_KEY)
                found = list(_around(fields, steps, OUTER))
            except RejectedError:
                continue
            for source, key, value in found:
                if source in sample.around or (len(sample.around) < _MOST_KEYS and not is_unstorable(key)):
                    counting.count(sample.around.setdefault(source, KeyEvidence(key=key)), value)


def _around(fields: Fields, steps: RecordSteps, path: str) -> Iterator[tuple[str, str, Value]]:
    """Yields sources, keys and values beside the way to the records."""
    step, *rest = steps
    for key, value in fields.items():
        if key != step:
            yield path + step_text(key), key, value
    inner = [fields[step]] if step in fields else []
    while rest and rest[0] is None:
        inner = [element for value in inner if isinstance(value[0], list) for element in _first(value)]
        rest = rest[1:]
    if rest:
        for value, raw in inner:
            if isinstance(value, dict):
                yield from _around(read_object(raw, 1, EVERY_KEY), tuple(rest), path + step_text(step or ""))


def _first(array: Value) -> Iterator[Value]:
    return islice(elements_of(array[1]), SAMPLED_ELEMENTS)
