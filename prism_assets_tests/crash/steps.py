"""The steps of lives: stages of the platform, changes of table files, and damage."""

from __future__ import annotations

import gzip
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone

import pyarrow.parquet as pq

from prism_assets.domain.erasures.records import ErasureRecord
from prism_assets.domain.errors import TerminalError
from prism_assets.domain.files.keys import table_folder
from prism_assets.domain.records.folding import RecordPart
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.records import record_objects
from prism_assets.objectstore.erasure_records import put_record
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.close_open_days import close_open_days
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.rules import withdraw_erasure
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.history.run import run_history
from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.iceberg.report import IcebergReport
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.leases import takeover_seconds
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.run import CycleReport, run_until_idle
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table
from prism_assets_tests.crash.life import VANISHING
from prism_assets_tests.crash.table_texts import EXTRA, LINKED, OLD_FORMAT, REFUSING
from prism_assets_tests.parquet import read_parquet

HIDDEN_SECONDS = 1
"""How long a received message stays hidden from others."""


def do(context: StageContext, step: str, now: datetime) -> tuple[CycleReport, ...]:
    """Does one step; the turns of a whole run, of other steps none."""
    return _STEPS[step](context, now) or ()


def _run(context: StageContext, now: datetime) -> tuple[CycleReport, ...]:
    return run_until_idle(context, clock=lambda: now)


def _apply(context: StageContext, now: datetime) -> None:
    run_apply(context, context.settings.tables_dir, now, accept_failing_reads=True)


def _edit(context: StageContext, table: str, change: Callable[[str], str]) -> None:
    """Changes the file of a table of the schema `log`."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        if f"table: {table}" in (text := path.read_text()):
            path.write_text(change(text))


def _raise(errors: Sequence[str]) -> None:
    """Ends the step if a stage reports errors."""
    if errors:
        raise TerminalError("; ".join(errors))


def _widen(context: StageContext, now: datetime) -> None:
    """The number in log.events becomes a wider one, while no reader fails."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        path.write_text(path.read_text().replace("name: number, type: integer", "name: number, type: bigint"))
    run_apply(context, context.settings.tables_dir, now)


def _merge_all(context: StageContext, now: datetime) -> None:
    run_merge(context, now=now, ignore_schedule=True)


def publish_iceberg(context: StageContext, now: datetime) -> IcebergReport:
    return run_iceberg(context, now=now, ignore_pace=True, wait_seconds=takeover_seconds(context))


def _withdraw(context: StageContext, now: datetime) -> None:
    """The table file of log.clicks names no Iceberg any more."""
    _edit(context, "clicks", lambda text: text.replace("iceberg: true\n", ""))
    _apply(context, now)


def _move(context: StageContext, now: datetime, *, stopped: bool = False) -> None:
    """Lets the stream `extra` feed log.events, and reads or stops the table's own stream."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        text = path.read_text().replace(EXTRA, "").replace(", enabled: false}", "}")
        if "table: events" in text:
            text = text.replace("streams:\n", f"streams:\n{EXTRA}")
            text = text.replace('/events/"}', '/events/", enabled: false}') if stopped else text
        path.write_text(text)
    _apply(context, now)


def _stop(context: StageContext, now: datetime) -> None:
    _move(context, now, stopped=True)


def _rename(context: StageContext, now: datetime) -> None:
    """Renames log.visits to log.tours in its file."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        text = path.read_text().replace("table: visits\n", "table: tours\nwas: log.visits\ngrace_days: 0\n")
        path.write_text(text)
    _apply(context, now)


def _drop(context: StageContext, now: datetime) -> None:
    """The table log.clicks is retired, and dropped as if the grace and then the reader lease were over."""
    aside = context.settings.tables_dir.parent / "retired"
    aside.mkdir(exist_ok=True)
    for path in context.settings.tables_dir.glob("*.yaml"):
        if "table: clicks" in (text := path.read_text()):
            (aside / path.name).write_text(re.sub("streams:\n.*\n", "retired: true\n", text))
            path.unlink()
    if "log.clicks" in {str(table.name) for table in context.choose_with_dropped(None) if not table.dropped}:
        run_apply(context, aside, now)
    _drop_whole(context, "log.clicks", max(now, datetime.now(timezone.utc)) + timedelta(days=60))


def _drop_unread(context: StageContext, now: datetime) -> None:
    """Creates the table log.unread, and drops it while an unread object waits."""
    aside = context.settings.tables_dir.parent / "unread"
    aside.mkdir(exist_ok=True)
    (aside / "unread.yaml").write_text(a_table("log.unread"))
    if "log.unread" not in {str(table.name) for table in context.choose_with_dropped(None)}:
        run_apply(context, aside, now)
        context.stores.put("staging", "unread/1.gz", gzip.compress(b"", mtime=0))
        run_discover(context, now=now, names=["log.unread"])
    _drop_whole(context, "log.unread", max(now, datetime.now(timezone.utc)))


def _drop_whole(context: StageContext, name: str, now: datetime) -> None:
    for _ in range(2):
        report = run_drop(context, name, confirm=name, now=now)
        _raise(report.errors)
    if not all(status.is_over for status in report.drops):
        raise TerminalError(f"it is not over: {report}")


def _drop_column(context: StageContext, now: datetime, *, instead: str = "") -> None:
    """Removes the column from the file of log.events, or replaces it by another one of this name."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        lines = path.read_text().splitlines(keepends=True)
        kept = "".join(line for line in lines if not re.search("{name: (said|told),", line))
        path.write_text(kept.replace("merge:", f"{instead}merge:"))
    _apply(context, now)


def _take_name(context: StageContext, now: datetime) -> None:
    _drop_column(context, now, instead='  - {name: said, type: integer, value: "1"}\n')


def _rename_column(context: StageContext, now: datetime) -> None:
    """Renames the column, and widens its type."""
    _drop_column(context, now, instead='  - {name: told, type: bigint, value: "1", was: said}\n')


def _link(context: StageContext, now: datetime) -> None:
    """Adds symlinks to the file of log.visits, and removes them from log.clicks."""
    _edit(context, "visits", lambda text: text.replace(LINKED, "") + LINKED)
    _edit(context, "clicks", lambda text: text.replace(LINKED, ""))
    _apply(context, now)


def _adopt(context: StageContext, now: datetime) -> None:
    """The table file of log.visits says Iceberg, and the older objects are rewritten."""
    _edit(context, "visits", lambda text: text.replace(OLD_FORMAT, "iceberg: true\n"))
    _apply(context, now)
    _raise(run_adopt(context, "log.visits", since=None).errors)


def _erase(context: StageContext, _now: datetime) -> None:
    """Runs the erasure of the life of this name."""
    for table, divisor in (("log.events", 7), ("log.clicks", 5)):
        _erase_ids(context, table, divisor)


def _erase_records(context: StageContext, _now: datetime) -> None:
    """Runs the erasure of the life of join tables."""
    _erase_ids(context, "log.parts", 7)


def _erase_parts(context: StageContext, _now: datetime) -> None:
    """Runs the erasure of the life of nested tables: by a field that is null in some rows."""
    _erase_ids(context, "log.events", 7, column="account.id")


def _erase_ids(context: StageContext, table: str, divisor: int, *, column: str = "id") -> None:
    where = f"{column} % {divisor} = 0"
    _raise(run_erase(context, table, where, rows=plan_erasure(context, table, where).all_matching).errors)


def _close_days_early(context: StageContext, now: datetime) -> None:
    """The open day of log.clicks holds rows that are erased, and nobody waits for its end."""
    _raise(close_open_days(context, ["log.clicks"], clock=lambda: now).errors)


def _withdraw_erasure(context: StageContext, _now: datetime) -> None:
    """Records an erasure in the lake without PostgreSQL, as after a restore. A person withdraws it."""
    (table,) = context.choose_tables(["log.events"])
    record = ErasureRecord(datetime.now(timezone.utc), "f" * 64, table_folder(table.name))
    put_record(context.stores, context.lake, record, ["id"])
    withdraw_erasure(context, "log.events", record.digest)


def _prove(context: StageContext, _now: datetime) -> None:
    """As if the reader lease were over."""
    _raise(continue_erasures(context, now=datetime.now(timezone.utc) + timedelta(days=5), forced=True).errors)


def _redefine(context: StageContext, now: datetime) -> None:
    """A column of log.events is computed otherwise from this instant on."""
    column = f"  - {{name: made, type: string, value: \"'{now:%d %H:%M}'\"}}\nmerge:"
    _edit(context, "events", lambda text: re.sub(r"(  - \{name: made.*\n)?merge:", column, text))
    _apply(context, now)


def _rebuild(context: StageContext, now: datetime) -> None:
    """The first day of log.events."""
    _raise(run_rebuild(context, "log.events", day=date(2026, 3, 1), now=now).errors)


def _stream_events(context: StageContext, now: datetime) -> None:
    """Has one table of the prefix read its objects, and the others not."""
    run_stream(context, now=now, names=["log.events"])


def _reroute(context: StageContext, now: datetime) -> None:
    """Views move from log.clicks to log.events."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        path.write_text(path.read_text().replace("in: [event]", "in: [event, view]"))
    _apply(context, now)


def _rebuild_group(context: StageContext, now: datetime) -> None:
    """Divides the first day by the new routes."""
    for table in ("log.events", "log.clicks"):
        _raise(run_rebuild(context, table, day=date(2026, 3, 1), now=now).errors)


def _rebuild_records(context: StageContext, now: datetime) -> None:
    """Rebuilds all of log.parts after a loss."""
    _raise(run_rebuild(context, "log.parts", now=now).errors)


def _replay(context: StageContext, now: datetime) -> None:
    """Ends the rejections in the file of log.clicks, and replays the refused lines."""
    _edit(context, "clicks", lambda text: text.replace(REFUSING, ""))
    _apply(context, now)
    _raise(run_replay(context, "log.clicks", now=now).errors)


def _history(context: StageContext, now: datetime) -> None:
    """Brings in the days before the first one of log.events. No object of today has to come first."""
    first, last = date(2026, 2, 26), date(2026, 2, 28)
    _raise(run_history(context, "log.events", first=first, last=last, clock=lambda: now, patience_seconds=0.0).errors)


def _repair(context: StageContext, _now: datetime) -> None:
    run_repair(context)


def _gc(context: StageContext, _now: datetime) -> None:
    """Collects garbage with the clocks of the store and the database ahead, as if everything were days old."""
    _raise(run_gc(context, now=datetime.now(timezone.utc) + timedelta(days=5), names=["log.events"]).errors)


def _archive(context: StageContext, _now: datetime) -> None:
    """Deletes the staging objects of expired days, and lets enough time pass for the archive."""
    with context.database.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT o.object_key FROM prism_staging_objects o JOIN prism_small_objects USING (prism_staging_object_id) "
            "JOIN prism_partitions USING (prism_partition_id) GROUP BY o.prism_staging_object_id "
            "HAVING bool_and(expire_time IS NOT NULL)"
        )
        keys = list(rows.scalars())
    context.stores.delete("staging", keys)
    for _ in range(2):  # the bytes go first
        _raise(run_gc(context, now=datetime.now(timezone.utc) + timedelta(days=500)).errors)


def _wait(_context: StageContext, _now: datetime) -> None:
    """Waits until messages received but not deleted come again."""
    time.sleep(HIDDEN_SECONDS + 0.1)


def _reencode(context: StageContext, _now: datetime) -> None:
    """Writes all small objects as another version of the encoder would have, and their lengths with them."""
    for staging_id, key in _small_objects(context):
        body = io.BytesIO()
        table = read_parquet(context.stores.get("lake", key))
        pq.write_table(table, body, compression="none", use_dictionary=False)
        context.stores.put("lake", key, body.getvalue())
        with context.database.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE prism_small_objects SET content_length = {len(body.getvalue())} "
                f"WHERE prism_staging_object_id = {staging_id}"
            )


def _lose(context: StageContext, _now: datetime) -> None:
    context.stores.delete("lake", [key for _, key in _small_objects(context)][:2])


def _lose_records(context: StageContext, _now: datetime) -> None:
    """Deletes a published object of log.parts."""
    (table,) = context.choose_tables(["log.parts"])
    with context.database.begin() as connection:
        found = record_objects.load_current(connection, context.lake.keys(table), table.table_id)
    context.stores.delete("lake", [item.key for item in found if item.part is RecordPart.VISIBLE][:1])


def _vanish(context: StageContext, _now: datetime) -> None:
    """Removes the vanishing objects, recognised by the end of their names."""
    listed = list(context.stores.list("staging", ""))
    context.stores.delete("staging", [item.key for item in listed if item.key.endswith(VANISHING)])


def _stray(context: StageContext, _now: datetime) -> None:
    """Writes an object by a forgotten task; nobody will commit it."""
    (_, key), *_ = _small_objects(context)
    with context.database.begin() as connection:
        statement = "SELECT max(prism_staging_object_id) FROM prism_staging_objects WHERE state = 'failed'"
        given_up = connection.exec_driver_sql(statement).scalar_one()
    if given_up is not None:
        name = f"{key.rpartition('/')[0]}/prism-{given_up:019d}.parquet"
        context.stores.put("lake", name, context.stores.get("lake", key))


def _orphan(context: StageContext, _now: datetime) -> None:
    """A worker claims a batch, and is never heard of again."""
    start_batch(context, None)


def _orphan_merge(context: StageContext, now: datetime) -> None:
    """A worker claims a merge, and is never heard of again."""
    with context.database.begin() as connection:
        merge_jobs.claim_due(connection, now=now, limit=1, worker="nobody", ignore_schedule=True)


def _small_objects(context: StageContext) -> Iterator[tuple[int, str]]:
    """Returns the small objects of log.events, by staging object id."""
    for item in sorted(context.stores.list("lake", ""), key=lambda item: item.key):
        folder, _, name = item.key.rpartition("/")
        if ".log.events/live/" in folder and name.startswith("prism-") and name.endswith(".parquet"):
            yield int(name.removeprefix("prism-").removesuffix(".parquet")), item.key


_Step = Callable[[StageContext, datetime], "tuple[CycleReport, ...] | None"]


def _only(stage: Callable[..., object]) -> _Step:
    def step(context: StageContext, now: datetime) -> None:
        stage(context, now=now)

    return step


_STEPS: Mapping[str, _Step] = {
    "apply": _apply,
    "run": _run,
    "discover": _only(run_discover),
    "stream": _only(run_stream),
    "merge": _only(run_merge),
    "merge --all": _merge_all,
    "catalog": _only(run_catalog),
    "iceberg": _only(publish_iceberg),
    "withdraw": _withdraw,
    "move": _move,
    "rename": _rename,
    "drop": _drop,
    "drop unread": _drop_unread,
    "drop column": _drop_column,
    "take name": _take_name,
    "rename column": _rename_column,
    "widen": _widen,
    "link": _link,
    "stop": _stop,
    "resume": _move,
    "adopt": _adopt,
    "redefine": _redefine,
    "rebuild": _rebuild,
    "rebuild records": _rebuild_records,
    "stream events": _stream_events,
    "reroute": _reroute,
    "rebuild group": _rebuild_group,
    "replay": _replay,
    "history": _history,
    "repair": _repair,
    "erase": _erase,
    "erase records": _erase_records,
    "erase parts": _erase_parts,
    "withdraw erasure": _withdraw_erasure,
    "close days early": _close_days_early,
    "prove": _prove,
    "gc": _gc,
    "archive": _archive,
    "wait": _wait,
    "reencode": _reencode,
    "lose": _lose,
    "lose records": _lose_records,
    "vanish": _vanish,
    "stray": _stray,
    "orphan": _orphan,
    "orphan merge": _orphan_merge,
}
