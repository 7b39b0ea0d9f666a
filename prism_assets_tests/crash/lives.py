"""Lives of a lake, as data: arrivals with their times, and stages to run.

After a death a life continues where it ended. A life depends only on its name and seed, so the playing and the judging
process agree on every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

from prism_assets_tests import nested
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.crash.life import Author, Drop, Life, Phase
from prism_assets_tests.crash.table_texts import EXTRA, JOIN, KEEP, LINKED, NOISE, NUMBER, OLD_FORMAT, REFUSING, SAID


def days(seed: int) -> Life:
    """Three days of two tables in two zones: open, closed with late rows, merged in several ranges, switched, and late
    again, so that a range is extended. One table filters lines.
    """
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    target = 3_000 + author.random.randrange(3) * 500
    phases = (
        Phase(utc("2026-03-01T00:00"), ("apply",)),
        Phase(
            utc("2026-03-01T12:00"),
            ("run",),
            (
                drop(events, "2026-03-01T11:00", broken=2),
                drop(events, "2026-02-28T23:00", "2026-03-01T10:00"),
                drop(clicks, "2026-03-01T11:00", filtered=3),
            ),
        ),
        Phase(
            utc("2026-03-01T18:00"),
            ("run",),
            (
                *(drop(events, "2026-03-01T17:00", broken=author.random.randrange(2)) for _ in range(3)),
                drop(clicks, "2026-03-01T14:30", "2026-03-01T16:00", broken=1, filtered=2),
            ),
        ),
        Phase(utc("2026-03-02T00:10"), ("catalog",)),
        Phase(
            utc("2026-03-02T00:20"),
            ("discover", "stream", "catalog", "run"),
            (drop(events, "2026-03-01T23:00", "2026-03-02T00:05"), drop(events, "2026-03-01T22:00")),
        ),
        Phase(
            utc("2026-03-02T12:00"),
            ("run",),
            (drop(events, "2026-03-01T20:00", "2026-03-02T11:00", broken=1), drop(clicks, "2026-03-02T11:00")),
        ),
        Phase(utc("2026-03-03T01:00"), ("run",)),
    )
    merge = f"{{interval: 0, target_bytes: {target}, max_objects: 4}}"
    return Life(
        tables={events: "UTC", clicks: "Asia/Tokyo"},
        files=(a_table(events, merge=merge), a_table(clicks, timezone="Asia/Tokyo", merge="{interval: 0}") + KEEP),
        phases=phases,
        watched=(events, clicks),
    )


def damage(seed: int) -> Life:
    """A day with objects of another version, two of them lost before publication: repair."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    drops = (*(author.drop(events, hour, broken=number % 2) for number in range(3)), author.drop(clicks, hour))
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("discover", "stream"), drops),
            Phase(utc("2026-03-01T12:10"), ("reencode",)),
            Phase(utc("2026-03-02T00:10"), ("catalog",)),
            Phase(utc("2026-03-02T00:20"), ("lose",)),
            Phase(utc("2026-03-02T00:30"), ("repair", "catalog")),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(clicks,),
        rest=("repair", "run"),
    )


def messages(seed: int) -> Life:
    """Two days of a bucket with notifications. Each message comes, some repeatedly."""
    author = Author(seed)
    events = "log.events"
    return Life(
        tables={events: "UTC"},
        files=(a_table(events, merge="{interval: 0}"),),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("discover", "discover", "run"),
                tuple(author.drop(events, "2026-03-01T11:00", broken=number) for number in range(3)),
            ),
            Phase(utc("2026-03-02T12:00"), ("run",), (author.drop(events, "2026-03-01T13:00", "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events,),
        rest=("wait", "run"),
        queue=True,
    )


def losses(seed: int) -> Life:
    """An object that vanishes and is given up, a key written later by a forgotten task, and dying workers."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("discover", "vanish", "run"),
                (author.drop(events, hour), author.drop(events, hour, vanishes=True), author.drop(clicks, hour)),
            ),
            Phase(utc("2026-03-01T12:30"), ("stray", "repair")),
            Phase(
                utc("2026-03-01T13:00"),
                ("discover", "orphan", "run"),
                (author.drop(clicks, hour), author.drop(clicks, hour, broken=1), author.drop(events, hour)),
            ),
            Phase(utc("2026-03-01T14:00"), ("discover", "stream", "orphan merge", "run"), (author.drop(clicks, hour),)),
            Phase(utc("2026-03-02T12:00"), ("run",)),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(clicks,),
        rest=("repair", "run"),
        settings={"max_attempts": 2},
    )


def garbage(seed: int) -> Life:
    """A switched and extended day, with garbage collections as if days later."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "gc"),
                (*(author.drop(events, hour, broken=number) for number in range(2)), author.drop(clicks, hour)),
            ),
            Phase(utc("2026-03-02T12:00"), ("run", "gc")),
            Phase(utc("2026-03-02T13:00"), ("run", "gc"), (author.drop(events, hour),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (author.drop(events, hour), author.drop(clicks, hour))),
        ),
        watched=(clicks,),
        rest=("run", "gc"),
        collected=(events,),
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def shown(seed: int) -> Life:
    """Two days of tables published as Iceberg at every step, one until the second day, one from then on."""
    author = Author(seed)
    drop = author.drop
    events, clicks, visits = "log.events", "log.clicks", "log.visits"
    merge = "{interval: 0, target_bytes: 3000, max_objects: 4}"
    return Life(
        tables={events: "UTC", clicks: "UTC", visits: "UTC"},
        files=(
            a_table(events, merge=merge, iceberg="true"),
            a_table(clicks, merge="{interval: 0}", iceberg="true"),
            a_table(visits, merge="{interval: 0}") + OLD_FORMAT,
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "iceberg"),
                (
                    drop(events, "2026-03-01T11:00", broken=1),
                    drop(clicks, "2026-03-01T11:00"),
                    drop(visits, "2026-03-01T11:00"),
                ),
            ),
            Phase(utc("2026-03-01T18:00"), ("discover", "stream", "iceberg"), (drop(events, "2026-03-01T17:00"),)),
            Phase(
                utc("2026-03-02T00:20"),
                ("run", "merge --all", "iceberg", "withdraw", "adopt", "iceberg"),
                (drop(events, "2026-03-01T23:00", "2026-03-02T00:05"),),
            ),
            Phase(utc("2026-03-03T01:00"), ("run", "iceberg"), (drop(events, "2026-03-01T22:00"),)),
        ),
        watched=(events, clicks, visits),
        rest=("run", "iceberg"),
        shown=(events, visits),
    )


def rebuilt(seed: int) -> Life:
    """A closed, switched and late day, rebuilt under a new definition each time. Refused lines of another table are
    replayed after their day: from objects without rows, from one with rows, and lines of an otherwise empty day.
    """
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    noon = "2026-03-01T11:00"
    merge = "{interval: 0, target_bytes: 5000, max_objects: 3}"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, merge=merge, iceberg="true"),
            a_table(clicks, merge="{interval: 0}") + REFUSING,
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "iceberg"),
                (
                    drop(clicks, noon, broken=1),
                    drop(clicks, noon),
                    drop(clicks, "2026-02-27T11:00", "2026-03-01T11:45"),
                    *(drop(events, noon) for _ in range(5)),
                ),
            ),
            Phase(utc("2026-03-02T00:10"), ("catalog", "redefine", "rebuild", "replay", "catalog")),
            Phase(
                utc("2026-03-02T13:00"),
                ("run", "discover", "stream", "redefine", "rebuild", "iceberg", "run"),
                (drop(events, "2026-03-01T22:00", "2026-03-02T11:00"), drop(clicks, "2026-03-02T11:00")),
            ),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events, clicks),
        rest=("run", "iceberg"),
        shown=(events,),
    )


def streams(seed: int) -> Life:
    """A stream that moves to another table, a stream stopped across midnight, and a discarded one."""
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, merge="{interval: 0}"),
            a_table(clicks, merge="{interval: 0}").replace("streams:\n", f"streams:\n{EXTRA}{NOISE}"),
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (
                    drop(events, hour),
                    drop(clicks, hour, broken=1),
                    replace(drop(clicks, hour), folder="extra"),
                    replace(drop(clicks, hour), folder="noise", discarded=True),
                ),
            ),
            Phase(
                utc("2026-03-01T13:00"),
                ("move", "run"),
                (replace(drop(events, hour, broken=1), folder="extra"), drop(clicks, hour)),
            ),
            Phase(utc("2026-03-01T14:00"), ("stop", "run"), (drop(events, hour), drop(clicks, hour))),
            Phase(
                utc("2026-03-02T00:20"),
                ("run", "resume", "run"),
                (drop(events, hour, "2026-03-02T00:05"), replace(drop(events, hour), folder="extra")),
            ),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(clicks, hour),)),
        ),
        watched=(events, clicks),
    )


def shared(seed: int) -> Life:
    """Two tables read one prefix, and share its objects by their keys."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"

    def drop(table: str, *starts: str) -> Drop:
        return replace(author.drop(table, *starts, broken=1), folder=f"both/{table.split('.')[1]}")

    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=tuple(
            a_table(table, merge="{interval: 0}").replace(
                f'/{table.split(".")[1]}/"}}', f'/both/", route: {{{route}}}}}'
            )
            for table, route in ((events, 'key: "events/*/*"'), (clicks, "otherwise: true"))
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"), ("run",), tuple(drop(table, "2026-03-01T11:00") for table in (events, clicks))
            ),
            Phase(
                utc("2026-03-02T12:00"),
                ("run",),
                tuple(drop(table, "2026-03-01T13:00", "2026-03-02T11:00") for table in (events, clicks)),
            ),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events, clicks),
    )


def grouped(seed: int) -> Life:
    """Two tables divide the lines of one prefix, and a third one reads records inside of them.

    A kind moves from one table to the other while an object has been read by one of them. Then both rebuild the day.
    """
    author = Author(seed)
    events, clicks, parts = "log.events", "log.clicks", "log.parts"
    routes = {
        events: "route: {by: $.kind, in: [event]}",
        clicks: "route: {by: $.kind, otherwise: true}",
        parts: 'format: {json: {records: "$.items[*]"}}',
    }
    return Life(
        tables=dict.fromkeys(routes, "UTC"),
        files=tuple(
            a_table(table, merge="{interval: 0}").replace(f'/{table.split(".")[1]}/"}}', f'/group/", {share}}}')
            for table, share in routes.items()
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), author.group("2026-03-01T11:00", broken=2)),
            Phase(
                utc("2026-03-01T13:00"),
                ("discover", "stream events", "reroute", "run"),
                (*author.group("2026-03-01T12:30", broken=1), *author.group("2026-03-01T12:40")),
            ),
            Phase(utc("2026-03-02T12:00"), ("run",), author.group("2026-03-02T11:00", broken=1)),
            Phase(utc("2026-03-02T13:00"), ("rebuild group", "run")),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events, parts),
    )


def retention(seed: int) -> Life:
    """Two tables with days expiring one after another, one of them Iceberg. Some rows come too late."""
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    noons = [f"2026-03-0{day}T11:00" for day in (1, 2, 3)]
    keeps = "retention_days: 2\n"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, merge="{interval: 0}") + keeps,
            a_table(clicks, merge="{interval: 0}", iceberg="true") + keeps,
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop(events, noons[0], broken=1), drop(clicks, noons[0]))),
            Phase(utc("2026-03-02T12:00"), ("run",), (drop(events, *noons[:2]), drop(clicks, noons[1]))),
            Phase(utc("2026-03-03T12:00"), ("run",), (drop(events, noons[2]), drop(clicks, noons[2]))),
            Phase(utc("2026-03-04T00:20"), ("run",), (drop(events, *noons[:2]),)),
            Phase(
                utc("2026-03-04T06:00"),
                ("run",),
                (replace(drop(events, noons[0], broken=1), too_old=True), drop(events, noons[1])),
            ),
            Phase(utc("2026-03-05T06:00"), ("run",), (replace(drop(clicks, noons[0]), too_old=True),)),
        ),
        watched=(events, clicks),
        shown=(clicks,),
        ended=frozenset((table, date(2026, 3, day)) for table in (events, clicks) for day in (1, 2)),
    )


def archived(seed: int) -> Life:
    """A table with two expiring days. At the end PostgreSQL has only their former existence."""
    author = Author(seed)
    events = "log.events"
    noons = [f"2026-03-0{day}T11:00" for day in (1, 2, 3)]

    def old(*starts: str) -> Drop:
        return replace(author.drop(events, *starts), archived=True)

    return Life(
        tables={events: "UTC"},
        files=(a_table(events, merge="{interval: 0}") + "retention_days: 2\n",),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (old(noons[0]),)),
            Phase(utc("2026-03-02T12:00"), ("run",), (old(*noons[:2]), old(noons[1]))),
            Phase(utc("2026-03-03T12:00"), ("run",), (author.drop(events, noons[2], broken=1),)),
            Phase(utc("2026-03-05T06:00"), ("run",), (author.drop(events, noons[2]),)),
            Phase(utc("2026-03-05T07:00"), ("run", "archive", "run")),
        ),
        watched=(events,),
        ended=frozenset((events, date(2026, 3, day)) for day in (1, 2)),
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def names(seed: int) -> Life:
    """A table renamed while rows come, with its former name removed at once, and a retired and dropped table."""
    author = Author(seed)
    tours, clicks = "log.tours", "log.clicks"

    def drop(*starts: str, broken: int = 0) -> Drop:
        return replace(author.drop(tours, *starts, broken=broken), folder="visits")

    hour = "2026-03-01T11:00"
    return Life(
        tables={tours: "UTC", clicks: "UTC"},
        files=(a_table("log.visits", merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (drop(hour, broken=1), drop(hour), replace(author.drop(clicks, hour, broken=1), gone=True)),
            ),
            Phase(utc("2026-03-01T13:00"), ("discover", "rename", "run"), (drop(hour),)),
            Phase(utc("2026-03-02T12:00"), ("run",), (drop(hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-02T18:00"), ("drop", "drop unread", "run")),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(hour),)),
        ),
        watched=(tours,),
        settings={"gc_max_fraction": 1.0},
    )


def columns(seed: int) -> Life:
    """A column dropped while rows come. Another one takes its name after a rebuild, and is renamed and widened in its
    turn, until Glue shows only the new name.
    """
    author = Author(seed)
    drop = author.drop
    events = "log.events"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC"},
        files=(a_table(events, columns=[SAID], merge="{interval: 0}", iceberg="true"),),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop(events, hour, broken=1), drop(events, hour))),
            Phase(utc("2026-03-01T13:00"), ("discover", "drop column", "run"), (drop(events, hour),)),
            Phase(utc("2026-03-02T00:20"), ("run",), (drop(events, hour, "2026-03-02T00:05"),)),
            Phase(utc("2026-03-02T12:00"), ("run", "rebuild", "run")),
            Phase(utc("2026-03-02T13:00"), ("take name", "run"), (drop(events, hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-02T18:00"), ("rename column", "run"), (drop(events, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(events, hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T06:00"), ("run",)),
            Phase(utc("2026-04-03T00:00"), ("run",)),
            Phase(utc("2026-04-03T06:00"), ("run",)),
        ),
        watched=(events,),
        rest=("run", "iceberg"),
        shown=(events,),
    )


def flipped(seed: int) -> Life:
    """A column widened by copies while rows come, some late. No reader finds wide values under a narrow type in Glue,
    and at the end all are wide.
    """
    author = Author(seed)
    drop = author.drop
    events = "log.events"
    hour, next_hour = "2026-03-01T11:00", "2026-03-02T11:00"
    merge = "{interval: 0, target_bytes: 3000, max_objects: 4}"
    return Life(
        tables={events: "UTC"},
        files=(a_table(events, columns=[NUMBER], merge=merge, iceberg="true"),),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop(events, hour, broken=1), drop(events, hour))),
            Phase(utc("2026-03-02T00:20"), ("run",), (drop(events, hour, "2026-03-02T00:05"),)),
            Phase(utc("2026-03-02T12:00"), ("discover", "stream", "widen"), (drop(events, hour, next_hour),)),
            Phase(utc("2026-03-02T12:10"), ("merge", "catalog", "discover", "stream"), (drop(events, next_hour),)),
            Phase(utc("2026-03-02T12:15"), ("catalog", "merge", "run"), (drop(events, hour, next_hour),)),
            Phase(utc("2026-03-02T13:00"), ("run",), (drop(events, hour, next_hour),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(events, next_hour),)),
        ),
        watched=(events,),
        rest=("run", "iceberg"),
        shown=(events,),
    )


def linked(seed: int) -> Life:
    """Days of tables with symlinks during merges and garbage collections: one table always, one until its first day is
    over, one from then on.
    """
    author = Author(seed)
    drop = author.drop
    events, clicks, visits = "log.events", "log.clicks", "log.visits"
    hour = "2026-03-01T11:00"
    merge = "{interval: 0, target_bytes: 3000, max_objects: 4}"
    return Life(
        tables={events: "UTC", clicks: "UTC", visits: "UTC"},
        files=(
            a_table(events, merge=merge) + LINKED,
            a_table(clicks, merge="{interval: 0}") + LINKED,
            a_table(visits, merge="{interval: 0}"),
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (drop(events, hour, broken=1), drop(events, hour), drop(clicks, hour), drop(visits, hour)),
            ),
            Phase(utc("2026-03-02T00:20"), ("run", "link", "catalog"), (drop(events, hour), drop(visits, hour))),
            Phase(utc("2026-03-02T12:00"), ("run", "gc"), (drop(events, hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(events, hour), drop(visits, hour))),
        ),
        watched=(clicks, visits, "log_symlink.visits"),
        rest=("run", "gc"),
        collected=(events,),
        linked=(events, visits),
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def erasure(seed: int) -> Life:
    """Rows of an open day, of a closed one and of merged objects are erased, and some of them come again."""
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    first, second = "2026-03-01T11:00", "2026-03-02T11:00"
    phases = (
        Phase(utc("2026-03-01T00:00"), ("apply",)),
        Phase(
            utc("2026-03-01T12:00"),
            ("run",),
            (*(drop(events, first, rows=20, broken=2) for _ in range(2)), drop(clicks, first, rows=20)),
        ),
        Phase(utc("2026-03-02T00:10"), ("run",)),
        Phase(utc("2026-03-02T00:20"), ("run",)),
        Phase(
            utc("2026-03-02T12:00"),
            ("discover", "stream", "catalog", "erase", "catalog"),
            (drop(events, first, second, rows=20, broken=1), drop(clicks, first, second, rows=20)),
        ),
        Phase(utc("2026-03-02T13:00"), ("run",), (drop(events, first, second, rows=20, broken=1),)),
        Phase(utc("2026-03-02T14:00"), ("withdraw erasure", "close days early")),
        Phase(utc("2026-03-03T01:00"), ("run", "prove"), (drop(clicks, second, rows=20),)),
    )
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=phases,
        watched=(events, clicks),
        rest=("run", "prove"),
        erased={events: 7, clicks: 5},
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def parts(seed: int) -> Life:
    """Nested rows and records of documents, through late rows, a repair, a rebuild and merges. Rows are erased by a
    field of a struct.
    """
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    first, second = "2026-03-01T11:00", "2026-03-02T11:00"

    def drop(table: str, *starts: str, broken: int = 0) -> Drop:
        return replace(author.drop(table, *starts, broken=broken), nested=True, is_document=table == clicks)

    merge, owner = (
        "{interval: 0, target_bytes: 9000, max_objects: 3}",
        "{name: owner, type: string, source: $outer.owner.name}",
    )
    documents = a_table(clicks, columns=[*nested.COLUMNS, owner], merge="{interval: 0}", iceberg="true")
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, columns=nested.COLUMNS, merge=merge, iceberg="{metrics: [id, account.id]}"),
            documents.replace('/clicks/"}', '/clicks/", format: {json: {records: "$.records[*]"}}}'),
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (*(drop(events, first, broken=1) for _ in range(3)), drop(clicks, first, broken=2)),
            ),
            Phase(utc("2026-03-02T00:10"), ("catalog", "lose", "repair", "catalog"), (drop(clicks, first, broken=1),)),
            Phase(
                utc("2026-03-02T12:00"),
                ("run", "discover", "stream", "redefine", "rebuild", "run"),
                (drop(events, first, second), drop(clicks, first, second)),
            ),
            Phase(utc("2026-03-02T13:00"), ("discover", "stream", "catalog", "erase parts"), (drop(events, first),)),
            Phase(utc("2026-03-03T01:00"), ("run", "prove"), (drop(events, second, broken=1), drop(clicks, second))),
        ),
        watched=(clicks,),
        rest=("run", "iceberg", "prove"),
        shown=(events, clicks),
        nested=(events, clicks),
        erased={events: 7},
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def changes(seed: int) -> Life:
    """Changes of a join table, some too late, and records merged after their day.

    Some records are erased entirely, and some of them come again. A lost object of records is made again.
    """
    author = Author(seed)
    parts = "log.parts_changes"

    def drop(*starts: str, broken: int = 0, too_old: bool = False) -> Drop:
        return replace(author.drop(parts, *starts, broken=broken), folder="parts", too_old=too_old)

    return Life(
        tables={parts: "UTC"},
        files=(JOIN,),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop("2026-03-01T11:30", broken=1), drop("2026-03-01T11:40"))),
            Phase(
                utc("2026-03-02T12:00"), ("run",), (drop("2026-03-02T11:30"), drop("2026-03-01T11:00", too_old=True))
            ),
            Phase(
                utc("2026-03-03T01:00"), ("run", "lose records", "rebuild records", "run"), (drop("2026-03-02T23:30"),)
            ),
            Phase(utc("2026-03-03T01:30"), ("discover", "stream", "erase records"), (drop("2026-03-02T23:45"),)),
            Phase(utc("2026-03-03T01:40"), ("run", "prove"), (drop("2026-03-02T23:50"),)),
            Phase(utc("2026-03-03T06:00"), ("run",)),
        ),
        watched=(parts,),
        rest=("run", "prove"),
        erased={parts: 7},
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def history(seed: int) -> Life:
    """Old days that come in by `prism history`, beside rows of today, and late rows of them."""
    author = Author(seed)
    events = "log.events"
    text = a_table(events, merge="{interval: 0}").replace('/events/"', '/events/", since: 2026-03-01')

    def old(day: str, *, broken: int = 0) -> Drop:
        drop = author.drop(events, f"{day}T11:00", broken=broken)
        return replace(drop, folder=f"events/dt={day}")

    return Life(
        tables={events: "UTC"},
        files=(text,),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "history", "run"),
                (
                    *(old("2026-02-26", broken=number) for number in range(2)),
                    *(old("2026-02-27") for _ in range(2)),
                    author.drop(events, "2026-03-01T11:00"),
                ),
            ),
            Phase(utc("2026-03-01T13:00"), ("history", "discover", "stream", "catalog"), (old("2026-02-27"),)),
            Phase(utc("2026-03-02T12:00"), ("run",)),
        ),
        watched=(events,),
        rest=("history", "run"),
    )


LIVES: Mapping[str, Callable[[int], Life]] = {
    life.__name__: life
    for life in (
        days,
        messages,
        damage,
        losses,
        garbage,
        shown,
        rebuilt,
        streams,
        shared,
        grouped,
        retention,
        archived,
        names,
        columns,
        flipped,
        linked,
        erasure,
        parts,
        changes,
        history,
    )
}
