"""The steps of the protocol. One step is one transaction of the product, or one call to the store or the catalog.

A transaction is one step because its row locks exclude others; without a rule, the guarded transaction splits into two.
A process without a further step has crashed or stands still, so each step may be its last. A process without its lease
or lock continues unaware at any later time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from prism_assets.domain.days.partitions import (
    ObjectTotals,
    Partition,
    Publication,
    SwitchEvidence,
    current_publication,
    switch_obstacle,
    wanted_publication,
)
from prism_assets_tests.builders import a_range
from prism_assets_tests.model.states import (
    A_NEW_PARTITION,
    OBJECT_BYTES,
    Call,
    Content,
    Entry,
    Merger,
    Range,
    Rows,
    Rules,
    Run,
    Size,
    SmallObject,
    StagingObject,
    State,
    Worker,
    fingerprint,
    plan,
)

Step = tuple[str, State]
LATE_LANDING = "glue.land_late"
"""A call takes effect after its run lost the lock or died. Only after this step may readers see less, until the next
run, because nobody can call back a call.
"""

_MOST_NOTES = 3
_Slot = TypeVar("_Slot", Worker, Merger, Run)


def steps(state: State, rules: Rules, size: Size) -> Iterator[Step]:
    """Returns all possible next steps. Processes of one kind are alike."""
    if None in state.workers:
        yield from start_batch(state, rules, size)
    for worker in _different(state.workers):
        yield from stream(state, worker, rules)
    yield from expire_batches(state)
    if None in state.mergers:
        yield from claim_merge(state, rules)
    for merger in _different(state.mergers):
        yield from merge(state, merger, rules, size)
    yield from expire_merge(state)
    if None in state.runs:
        yield from lock_table(state, rules)
    for run in _different(state.runs):
        yield from catalog(state, run, rules, size)
        if run.locked and not size.publications_at_once:
            yield "catalog.lose_lock", _changed(state, run, run._replace(locked=False))
    yield from late_calls(state, rules)


def _different(slots: tuple[_Slot | None, ...]) -> list[_Slot]:
    found: list[_Slot] = []
    for slot in slots:
        if slot is not None and slot not in found:
            found.append(slot)
    return found


def _exchanged(slots: tuple[_Slot | None, ...], before: _Slot | None, after: _Slot | None) -> tuple[_Slot | None, ...]:
    """Returns the slots with one changed, in an order that ignores differences between processes of one kind."""
    kept = list(slots)
    kept.remove(before)
    kept.append(after)
    return tuple(sorted(kept, key=hash))


# Stream


def start_batch(state: State, rules: Rules, size: Size) -> Iterator[Step]:
    """`start_batch`: insert the batch, claim, read the marks. Without the epoch lock others come between."""
    taken = {number for worker in state.workers if worker and worker.phase == "starting" for number, _ in worker.tasks}
    pending = [n for n, item in enumerate(state.objects) if item.state == "pending" and n not in taken]
    if not pending or len(state.batches) >= size.batches:
        return
    batch = len(state.batches) + 1
    begun = state._replace(batches=(*state.batches, "starting"))
    for count in range(1, len(pending) + 1):
        tasks = tuple((number, _is_delayed(state, number, batch, rules)) for number in pending[:count])
        worker = Worker("starting", batch, tasks)
        found = begun._replace(workers=_exchanged(state.workers, None, worker))
        if rules.epoch_lock:
            yield f"stream.start: batch {batch} claims {count}", _started(found, worker)
        else:
            yield f"stream.start: batch {batch} looks at the marks", found


def _is_delayed(state: State, number: int, batch: int, rules: Rules) -> bool:
    partition = state.partition
    if partition is None:
        return False
    if not rules.tier_of_first_claim:
        return not partition.is_open
    mark = partition.closing_batch_id
    return mark is not None and (state.objects[number].first_batch or batch) > mark


def _started(state: State, worker: Worker) -> State:
    objects = list(state.objects)
    for number, _ in worker.tasks:
        objects[number] = StagingObject("claimed", objects[number].first_batch or worker.batch, worker.batch)
    return state._replace(
        objects=tuple(objects),
        batches=_with_state(state.batches, worker.batch, "running"),
        workers=_exchanged(state.workers, worker, worker._replace(phase="converting")),
    )


def _with_state(batches: tuple[str, ...], batch: int, now: str) -> tuple[str, ...]:
    return (*batches[: batch - 1], now, *batches[batch:])


def stream(state: State, worker: Worker, rules: Rules) -> Iterator[Step]:
    """Returns the worker's next step: upload one key, or commit."""
    if worker.phase == "starting":
        yield f"stream.start: batch {worker.batch} commits its claim", _started(state, worker)
    elif worker.uploaded < len(worker.tasks):
        number, delayed = worker.tasks[worker.uploaded]
        after = worker._replace(uploaded=worker.uploaded + 1)
        found = state._replace(workers=_exchanged(state.workers, worker, after))
        tier = "delayed" if delayed else "live"
        found = found._replace(**{tier: getattr(state, tier) | {number}})
        yield f"convert.put: batch {worker.batch} puts object {number} under {tier}/", found
    elif not rules.ids_under_lock and not worker.ids:
        ids = tuple(range(state.sequence + 1, state.sequence + len(worker.tasks) + 1))
        after = worker._replace(ids=ids)
        found = state._replace(sequence=ids[-1], workers=_exchanged(state.workers, worker, after))
        yield f"stream.commit: batch {worker.batch} takes ids {ids}", found
    else:
        yield f"stream.commit: batch {worker.batch}", _committed(state, worker, rules)


def _committed(state: State, worker: Worker, rules: Rules) -> State:
    """`commit_batch`: the batch row, the partition's row, small objects, the ledger, the merge job."""
    left = without_worker(state, worker)
    if rules.lease_fences and state.batches[worker.batch - 1] != "running":
        return left  # LeaseLost
    ids = worker.ids or tuple(range(state.sequence + 1, state.sequence + len(worker.tasks) + 1))
    small = [*state.small, *(SmallObject(i, *task) for i, task in zip(ids, worker.tasks, strict=True))]
    partition = state.partition or A_NEW_PARTITION
    objects = list(state.objects)
    for number, _ in worker.tasks:
        objects[number] = objects[number]._replace(state="done")
    return left._replace(
        objects=tuple(objects),
        batches=_with_state(state.batches, worker.batch, "done"),
        small=tuple(sorted(small)),
        sequence=max(state.sequence, ids[-1]),
        partition=replace(partition, last_object_id=max(partition.last_object_id, ids[-1])),
        job_waits=True,
    )


def without_worker(state: State, worker: Worker) -> State:
    """Returns the state without a worker. The worker's batch stays unchanged."""
    return state._replace(workers=_exchanged(state.workers, worker, None))


def expire_batches(state: State) -> Iterator[Step]:
    """`reclaim_expired`: declares a batch without a lease dead. Its worker may live on, unaware."""
    for batch, condition in enumerate(state.batches, start=1):
        if condition == "running":
            yield f"stream.reclaim_expired: batch {batch} is declared dead", declared_dead(state, batch)


def declared_dead(state: State, batch: int) -> State:
    """Returns the state after a batch is declared dead: its objects are pending again, with the same first batch."""
    objects = tuple(
        item._replace(state="pending", batch=0) if item.state == "claimed" and item.batch == batch else item
        for item in state.objects
    )
    return state._replace(objects=objects, batches=_with_state(state.batches, batch, "dead"))


# Merge


def claim_merge(state: State, rules: Rules) -> Iterator[Step]:
    """`claim_due`: claims a waiting job of a partition without a merger."""
    if not state.job_waits or state.job_runs:
        return
    if rules.claim_locks_rows:
        merger = Merger("claimed", True)
        found = state._replace(job_waits=False, job_runs=True)
        yield "merge.claim", found._replace(mergers=_exchanged(state.mergers, None, merger))
    else:
        merger = Merger("looking", False)
        yield "merge.claim: looks", state._replace(mergers=_exchanged(state.mergers, None, merger))


def merge(state: State, merger: Merger, rules: Rules, size: Size) -> Iterator[Step]:
    """Returns the worker's next step: plan, write the ranges, commit."""

    def becomes(after: Merger | None, found: State = state) -> State:
        return found._replace(mergers=_exchanged(state.mergers, merger, after))

    if merger.phase == "looking":
        found = state._replace(job_waits=False, job_runs=True)
        yield "merge.claim: marks the job", becomes(Merger("claimed", True), found)
    elif merger.phase == "claimed" and state.partition is not None:
        made = plan(size.policy, state.partition.is_open, state.chain, state.small)
        yield "merge.plan", becomes(merger._replace(phase="planned", plan=made))
    elif merger.phase == "planned" and merger.plan is not None:
        merged = state.merged
        for item in merger.plan.ranges:
            merged = _with_object(merged, item.lower, item.upper, _rows_to_write(state, item, size))
        yield "merge.put", becomes(merger._replace(phase="written"), state._replace(merged=merged))
    elif merger.plan is not None:
        yield "merge.commit", becomes(None, _merged(state, merger, rules, size))


def _with_object(
    merged: tuple[tuple[int, int, Rows], ...], lower: int, upper: int, rows: Rows
) -> tuple[tuple[int, int, Rows], ...]:
    others = (item for item in merged if item[:2] != (lower, upper))
    return tuple(sorted((*others, (lower, upper, rows))))


def _rows_to_write(state: State, item: Range, size: Size) -> Rows:
    extended = rows_of_range(state, item.lower, item.extends) if item.extends >= 0 else ()
    rows = tuple(sorted([*(extended or ()), *item.rows]))
    return rows[:-1] if size.merges_lose_a_row else rows


def rows_of_range(state: State, lower: int, upper: int) -> Rows | None:
    """Returns the rows of a merged object in the store, or None without the object."""
    return next((rows for a, b, rows in state.merged if (a, b) == (lower, upper)), None)


def _merged(state: State, merger: Merger, rules: Rules, size: Size) -> State:
    """`_finish`: the partition's row, the job's lease, the end of the chain, ranges, desired version, backlog."""
    made, partition = merger.plan, state.partition
    assert made is not None
    assert partition is not None
    end = state.chain[-1].upper_bound if state.chain else 0
    if rules.lease_fences and not merger.leased:
        return state  # LeaseLost
    if rules.lease_fences and end != made.chain_end:
        return state  # LeaseLost: somebody else merged meanwhile
    chain = list(state.chain)
    for item in made.ranges:
        if item.extends >= 0:
            chain = [old for old in chain if old.upper_bound != item.extends]
        rows = _rows_to_write(state, item, size)
        chain.append(a_range(item.lower, item.upper, OBJECT_BYTES * len(rows), len(rows), fingerprint(rows)))
    desired = max([partition.desired_version, *(item.upper for item in made.ranges)])
    return state._replace(
        chain=tuple(chain),
        partition=replace(partition, desired_version=desired),
        job_runs=False,
        job_waits=(state.job_waits and (state.job_runs or rules.lease_fences)) or made.backlog,
    )


def expire_merge(state: State) -> Iterator[Step]:
    """`reclaim_expired`: a job without a lease waits again. Its worker may live on, unaware."""
    if state.job_runs:
        yield "merge.reclaim_expired", lease_over(state)


def lease_over(state: State) -> State:
    """The state after the lease of the running job was over."""
    mergers = tuple(slot and slot._replace(leased=False) for slot in state.mergers)
    found = state._replace(job_waits=True, job_runs=False, mergers=mergers)
    return found._replace(mergers=tuple(sorted(mergers, key=hash)))


# Catalog


def lock_table(state: State, rules: Rules) -> Iterator[Step]:
    """The lease: one run a table. Nothing is done for a table without partitions."""
    if state.partition is None or (rules.one_run_a_table and any(run and run.locked for run in state.runs)):
        return
    yield "catalog.lock", state._replace(runs=_exchanged(state.runs, None, Run("may switch", True)))


def _changed(state: State, run: Run, after: Run | None) -> State:
    return state._replace(runs=_exchanged(state.runs, run, after))


def without_run(state: State, run: Run, rules: Rules) -> State:
    """Returns the state without a run, after a death or an error. Its note and its delayed call remain."""
    found = _changed(state, run, None)
    bound = rules.notes_of_others_stay
    if run.phase == "sent" and run.content is not None:
        return found._replace(calls=_ordered((*state.calls, Call(run.content, noted=bound))))
    return _with_note(found, rules) if run.noted and bound else found


def _with_note(state: State, rules: Rules) -> State:
    """Adds a note without a run or a call, so no continuing run may remove it.

    Runs compare the age of notes with their own; here a new note makes all notes new.
    """
    if not rules.notes_of_others_stay:
        return state._replace(notes=min(state.notes + 1, _MOST_NOTES))
    runs = tuple(run and run._replace(known=0) for run in state.runs)
    return state._replace(notes=1, runs=tuple(sorted(runs, key=hash)))


def _ordered(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    return tuple(sorted(calls, key=hash))


def _is_noted(state: State) -> bool:
    """Whether a run reads of any note."""
    bound = (call.noted for call in state.calls)
    return bool(state.notes) or any(bound) or any(run is not None and run.noted for run in state.runs)


def catalog(state: State, run: Run, rules: Rules, size: Size) -> Iterator[Step]:
    """Returns the catalog run's next step: switch, mark, close, publish, in the product's order.

    Skips steps without an effect, because they may be done already. The clock says whether the day is over.
    """
    partition = state.partition
    assert partition is not None
    if run.phase in _BEFORE_PUBLISHING:
        yield from _before_publishing(state, run, partition, rules, size)
    elif run.phase == "noted":
        yield "catalog.manifest", _written(state, run, partition)
    elif run.phase == "written":
        held = run.locked or not rules.one_run_a_table
        after = _changed(state, run, run._replace(phase="checked")) if held else without_run(state, run, rules)
        yield "catalog.check", after
    else:
        yield from _publish(state, run, partition, rules, size)


_BEFORE_PUBLISHING = ("may switch", "may mark", "may close", "may publish")


def _before_publishing(state: State, run: Run, partition: Partition, rules: Rules, size: Size) -> Iterator[Step]:
    done = _BEFORE_PUBLISHING.index(run.phase)
    starts = rules.epoch_lock and "starting" in state.batches
    changes = (
        ("catalog.switch", switched(state, partition, rules)),
        ("catalog.mark", state if starts else marked(state, partition)),
        ("catalog.close", closed(state, partition, rules)),
    )
    for number, (name, after) in enumerate(changes):
        if number >= done and after is not state:
            yield name, _changed(after, run, run._replace(phase=_BEFORE_PUBLISHING[number + 1]))
    begun = _begun(state, run, partition, rules)
    if size.publications_at_once and begun.runs != _changed(state, run, None).runs:
        yield "catalog.publish: at once", _published(state, run, partition)
    else:
        yield "catalog.begin", begun


def _published(state: State, run: Run, partition: Partition) -> State:
    content = content_of(state, partition)
    recorded = _advanced(partition, content.publication)
    return _changed(state._replace(shown=content, partition=recorded), run, None)


def switched(state: State, partition: Partition, rules: Rules) -> State:
    """`_switch`, or the same state if the switch is refused."""
    if partition.is_open or partition.switched:
        return state
    unproven = not rules.switch_needs_evidence and state.chain
    if not unproven and switch_obstacle(partition, evidence(state)) is not None:
        return state
    return state._replace(partition=replace(partition, switched=True))


def evidence(state: State) -> SwitchEvidence:
    """`switch_evidence`: both sides of a switch, summed up."""
    upper = state.chain[-1].upper_bound if state.chain else None
    live = tuple(item.staging for item in state.small if not item.delayed)
    covered = tuple(item.staging for item in state.small if item.object_id <= (upper or 0))
    return SwitchEvidence(
        upper_bound=upper,
        uncovered_live=sum(not item.delayed and item.object_id > (upper or 0) for item in state.small),
        live=ObjectTotals(objects=len(live), rows=len(live), fingerprint=fingerprint(live)),
        covered=ObjectTotals(objects=len(covered), rows=len(covered), fingerprint=fingerprint(covered)),
        ranges=ObjectTotals(
            objects=len(state.chain),
            rows=sum(item.row_count for item in state.chain),
            fingerprint=sum(item.fingerprint for item in state.chain),
        ),
    )


def marked(state: State, partition: Partition) -> State:
    """`mark_closing`, or the same state if there is a mark already."""
    if partition.closing_batch_id is not None:
        return state
    mark = max((n for n, condition in enumerate(state.batches, start=1) if condition != "starting"), default=0)
    return state._replace(partition=replace(partition, closing_batch_id=mark))


def may_close(state: State, partition: Partition, rules: Rules) -> bool:
    """Whether no batch can add live objects to a marked partition any more."""
    mark = partition.closing_batch_id
    if not partition.is_open or mark is None:
        return False
    if not rules.tier_of_first_claim:
        return True
    return not any(item.state != "done" and 0 < item.first_batch <= mark for item in state.objects)


def closed(state: State, partition: Partition, rules: Rules) -> State:
    """`_close`, or the same state if something stands in the way."""
    if not may_close(state, partition, rules):
        return state
    last = max((item.object_id for item in state.small if not item.delayed), default=0)
    unmerged = partition.last_object_id > partition.desired_version
    return state._replace(partition=replace(partition, last_live_object_id=last), job_waits=state.job_waits or unmerged)


def _begun(state: State, run: Run, partition: Partition, rules: Rules) -> State:
    """Plans, and notes that the catalog is about to be touched. A run without work ends here."""
    if current_publication(partition) == wanted_publication(partition) and not _is_noted(state):
        return _changed(state, run, None)
    if not run.locked:
        return _changed(state, run, None)  # LeaseLost
    after = state if rules.notes_of_others_stay else _with_note(state, rules)
    return _changed(after, run, run._replace(phase="noted", known=state.notes))


def _written(state: State, run: Run, partition: Partition) -> State:
    """Reads the content of the day under its row's lock, and writes the manifest."""
    content = content_of(state, partition)
    manifests = state.manifests
    if not content.publication.is_live_prefix:
        others = (item for item in manifests if item.publication != content.publication)
        manifests = tuple(sorted((*others, content), key=hash))
    return _changed(state._replace(manifests=manifests), run, run._replace(phase="written", content=content))


def content_of(state: State, partition: Partition) -> Content:
    """`load_content`: the ranges, then the small objects above them."""
    wanted = wanted_publication(partition)
    if wanted.is_live_prefix:
        return Content(wanted, ())
    ranges = state.chain if partition.switched else ()
    small = [item for item in state.small if item.object_id > wanted.version]
    entries = [Entry(True, item.lower_bound, item.upper_bound) for item in ranges]
    return Content(wanted, (*entries, *(Entry(False, item.staging, int(item.delayed)) for item in small)))


def _publish(state: State, run: Run, partition: Partition, rules: Rules, size: Size) -> Iterator[Step]:
    content = run.content
    assert content is not None
    shows = state.shown is not None and state.shown.publication == content.publication
    if run.phase == "checked":
        yield "catalog.publish: asks", _changed(state, run, run._replace(phase="answered" if shows else "sent"))
    elif run.phase == "sent":
        yield from _call(state, run, content, rules, size)
    elif run.phase == "answered":
        read = shows or not rules.read_back
        after = _changed(state, run, run._replace(phase="read")) if read else without_run(state, run, rules)
        yield "catalog.publish: reads back", after
    elif run.phase == "read":
        recorded = _advanced(partition, content.publication)
        after = without_run(state, run, rules)  # LeaseLost: another run has the table, or a newer publication recorded
        if recorded is not None and (run.locked or not rules.records_are_fenced):
            after = _changed(state._replace(partition=recorded), run, run._replace(phase="recorded"))
        yield "catalog.record", after
    elif run.locked or not rules.records_are_fenced:
        yield "catalog.settle", _settled(state, run, rules)
    else:
        yield "catalog.settle", without_run(state, run, rules)


def _call(state: State, run: Run, content: Content, rules: Rules, size: Size) -> Iterator[Step]:
    """The call takes effect with an answer, or some day. Its caller gives up, or repeats the call."""
    answered = run._replace(phase="answered")
    landed = _changed(state._replace(shown=content), run, answered)
    yield "catalog.publish: the call lands" if run.locked else LATE_LANDING, landed
    if not rules.read_back:
        yield "catalog.publish: the call is lost", _changed(state, run, answered)
    if len(state.calls) >= size.late_calls:
        return
    yield "catalog.publish: nobody answers", without_run(state, run, rules)
    if size.calls_sent_twice and not run.in_doubt:
        first = Call(content, noted=rules.notes_of_others_stay and rules.doubt_stays_noted)
        twice = state._replace(calls=_ordered((*state.calls, first)))
        yield "catalog.publish: sends again", _changed(twice, run, run._replace(in_doubt=True))


def _advanced(partition: Partition, publication: Publication) -> Partition | None:
    """`publications.advance`: upwards only, or None."""
    version, last = publication.version, publication.published_object_id
    if partition.current_version > version or (partition.published_object_id or 0) > last:
        return None
    return replace(partition, current_version=version, published_object_id=last)


def _settled(state: State, run: Run, rules: Rules) -> State:
    """Removes the run's own note, and notes already without a run or a call when the comparison began.

    Without this rule the run removes as many notes as it knew, and one more, whoever owns them now.
    """
    count = run.known if rules.notes_of_others_stay else run.known + 1
    return _changed(state._replace(notes=max(state.notes - count, 0)), run, None)


def late_calls(state: State, rules: Rules) -> Iterator[Step]:
    """Delayed calls take effect in any order, or never. Then their notes have no purpose."""
    for number, call in enumerate(state.calls):
        left = state._replace(calls=(*state.calls[:number], *state.calls[number + 1 :]))
        left = _with_note(left, rules) if call.noted else left
        yield LATE_LANDING, left._replace(shown=call.content)
        yield "glue.lose", left


def has_catalog_work(state: State, rules: Rules, *, day_over: bool) -> bool:
    """`find_work`: whether a sensor asks for a catalog run."""
    partition = state.partition
    if partition is None:
        return False
    if rules.sensors_read_notes and (state.notes or any(call.noted for call in state.calls)):
        return True
    if current_publication(partition) != wanted_publication(partition):
        return True
    if partition.is_open:
        return day_over and (partition.closing_batch_id is None or may_close(state, partition, rules))
    return switched(state, partition, rules) is not state
