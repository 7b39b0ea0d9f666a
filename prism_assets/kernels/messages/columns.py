"""Columns that read facts about messages: filled by arrays where a fact is the only source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from prism_assets.kernels.columns import Indices
from prism_assets.kernels.json.blocks import OuterValues
from prism_assets.kernels.json.picks import Around, MessageFact
from prism_assets.kernels.json.rows import NOTHING
from prism_assets.kernels.messages.facts import Found, MessageFacts, json_values
from prism_assets.kernels.typed import Layout, Mask, Misfits, type_column, type_one_by_one
from prism_assets.kernels.values import UNFIT


def fact_column(
    layout: Layout, position: int, fact: MessageFact, messages: MessageFacts | None, numbers: Indices
) -> tuple[pa.Array, list[Misfits]]:
    """Returns the column of a fact for the messages with these numbers. Lines of other objects have no facts."""
    rules = layout.rules[position]
    if messages is None or not len(numbers):
        return pa.nulls(len(numbers), rules.arrow), []
    found = messages.at(fact.name, numbers)
    if (values := _for_type(found, layout, position)) is not None:
        array, misfits = type_column(layout, position, values)
    else:
        array, misfits = type_one_by_one(layout, position, json_values(found))
    return array, misfits if found.bad is None else with_unfit(misfits, position, np.flatnonzero(found.bad))


def _for_type(found: Found, layout: Layout, position: int) -> pa.Array | None:
    """Returns the values as the rule of many values takes them, or None if the rule of one value must do it."""
    rules = layout.rules[position]
    is_text = rules.compiled is not None and rules.compiled[0] == "text"
    if pa.types.is_integer(found.values.type):
        if rules.whole is not None and pa.types.is_integer(rules.whole):
            return found.values
        return found.values.cast(pa.string()) if is_text else None
    # Columns of JSON, structs and lists want the text of the value as JSON, and others nothing of an object.
    takes_text = rules.nested is None and not pa.types.is_string(rules.arrow) and not found.is_object
    return found.values if is_text or takes_text else None


def absent_times(layout: Layout, messages: MessageFacts | None, numbers: Indices) -> Mask | None:
    """Returns which messages have no partition time, where this is a fact alone."""
    fact = layout.lookups.facts.get(layout.partition)
    if not isinstance(fact, MessageFact):
        return None
    if messages is None:
        return np.ones(len(numbers), bool)
    found = messages.at(fact.name, numbers)
    absent = np.asarray(found.values.is_null().to_numpy(zero_copy_only=False), bool)
    return absent if found.bad is None else absent & ~found.bad


def mixed_misfits(
    layout: Layout,
    messages: MessageFacts | None,
    numbers: Indices,
    columns: Mapping[int, pa.Array],
    misfits: Sequence[Misfits],
) -> list[Misfits]:
    """Adds the rows with bytes that are no UTF-8 in columns of several sources, unless another source has a value."""
    found = list(misfits)
    if messages is None:
        return found
    for position, names in layout.lookups.mixed.items():
        bad = _any_bad(messages.at(name, numbers).bad for name in names)
        if bad is not None:
            empty = np.asarray(columns[position].is_null().to_numpy(zero_copy_only=False), bool)
            found = with_unfit(found, position, np.flatnonzero(bad & empty))
    return found


def outer_values(facts: MessageFacts, around: Around) -> tuple[OuterValues, ...]:
    """Returns the facts for columns that have other sources, too. Equal facts of neighbours are one value."""
    if not around.sources:
        return ()
    columns = [
        facts.values(source.name) if isinstance(source, MessageFact) else [NOTHING] * len(facts.rows)
        for source in around.sources
    ]
    found: list[OuterValues] = []
    for place, values in enumerate(zip(*columns, strict=True)):
        if not found or found[-1].values != values:
            found.append(OuterValues(facts.first + place, values))
    return tuple(found)


def _any_bad(masks: Iterable[Mask | None]) -> Mask | None:
    known = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(known) if known else None


def with_unfit(misfits: Sequence[Misfits], position: int, rows: Indices) -> list[Misfits]:
    """Adds rows whose value did not fit. A row with a value that did not fit for another reason counts once."""
    known = [misfit.rows for misfit in misfits if misfit.column == position]
    rows = np.setdiff1d(rows, np.concatenate(known)) if known else rows
    if not len(rows):
        return list(misfits)
    return list(_widened(misfits, Misfits(position, UNFIT, rows)))


def _widened(misfits: Sequence[Misfits], more: Misfits) -> Iterator[Misfits]:
    is_added = False
    for misfit in misfits:
        if (misfit.column, misfit.reason, misfit.path) == (more.column, more.reason, more.path):
            yield replace(misfit, rows=np.union1d(misfit.rows, more.rows))
            is_added = True
        else:
            yield misfit
    if not is_added:
        yield more
