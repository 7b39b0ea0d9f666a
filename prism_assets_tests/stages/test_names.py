"""Renamed and retired tables: the names that readers see, and the names that are free."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.gc.run import run_gc
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.world import World

NOON, MORNING = "2026-03-01T12:00", "2026-03-02T00:30"
FOLDER = "staging/visits/"
VISITS = a_table("log.visits")


def renamed(name: str, was: str, more: str = "") -> str:
    """Returns the table file of log.visits under another name, with its stream."""
    text = a_table(f"log.{name}").replace(f"staging/{name}/", FOLDER)
    return text + f"was: log.{was}\n{more}"


def arrive(world: World, count: int = 3) -> list[int]:
    rows = some_rows(count, utc(NOON))
    world.drop(rows, stream="visits")
    world.stream(NOON)
    return [row["id"] for row in rows]


def write(world: World, **files: str | None) -> None:
    """Writes table files by name, or removes them."""
    for name, text in files.items():
        path = world.settings.tables_dir / f"{name}.yaml"
        path.unlink(missing_ok=True) if text is None else path.write_text(text)


def refusal(world: World) -> str:
    with pytest.raises(DefinitionError) as raised:
        world.apply()
    return str(raised.value)


def grace_ends(world: World) -> None:
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_former_names SET end_time = now() - interval '1 second'")


def visits(world: World) -> list[int]:
    """A day of log.visits, published."""
    world.apply(VISITS)
    ids = arrive(world)
    world.catalog(NOON)
    return ids


def is_shown(world: World, table: str) -> bool:
    try:
        world.reader().table(table)
    except WrongUse:
        return False
    return True


def test_both_names_show_the_same_rows_until_the_grace_is_over(world: World) -> None:
    ids = visits(world)
    before = keys(world)
    write(world, visits=renamed("tours", "visits"))
    assert world.apply().lines == (
        "rename log.visits to log.tours: its objects stay where they are, and Glue shows both names for 30 days",
        "change stream tours of log.tours at s3://staging/visits/",
    )
    world.catalog(NOON)
    assert set(before) <= set(keys(world))
    ids += arrive(world)
    world.catalog(NOON)
    assert world.ids("log.tours") == world.ids("log.visits") == ids
    world.catalog(MORNING)
    ids += arrive(world)
    world.merge(MORNING, everything=True)
    world.catalog(MORNING)
    assert world.ids("log.tours") == world.ids("log.visits") == ids
    assert {key.split("/")[0].partition(".")[2] for key in keys(world)} == {"log.visits"}
    assert run_doctor(world.context, deep=True).is_clean
    grace_ends(world)
    assert "log.tours: remove its former name log.visits from the catalog" in map(
        str, preview(world.context, now=utc(MORNING))
    )
    (report,) = world.catalog(MORNING).tables
    assert report.removed == ("log.visits",)
    assert not is_shown(world, "log.visits")
    assert world.ids("log.tours") == ids
    assert not world.catalog(MORNING).changed
    hours_pass(world, 100)
    run_gc(world.context)
    assert world.ids("log.tours") == ids
    assert run_doctor(world.context, deep=True).is_clean
    assert world.apply().lines == (), "the field may stay in the file"


def test_without_grace_the_former_name_goes_with_the_next_catalog_run(world: World) -> None:
    ids = visits(world)
    write(world, visits=renamed("tours", "visits", "grace_days: 0\n"))
    assert world.apply().lines[0].endswith("and Glue forgets the former name at once")
    world.catalog(NOON)
    assert (world.ids("log.tours"), is_shown(world, "log.visits")) == (ids, False)


def test_objects_that_were_claimed_before_are_converted_for_the_renamed_table(world: World) -> None:
    world.apply(VISITS)
    rows = some_rows(3, utc(NOON))
    world.drop(rows, stream="visits")
    world.discover(NOON)
    write(world, visits=renamed("tours", "visits"))
    world.apply()
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids("log.tours") == [row["id"] for row in rows]


def test_a_table_may_be_renamed_again_and_back(world: World) -> None:
    ids = visits(world)
    for name, was in (("tours", "visits"), ("trips", "tours"), ("visits", "trips")):
        write(world, visits=renamed(name, was))
        world.apply()
        world.catalog(NOON)
        assert world.ids(f"log.{name}") == ids
    assert all(is_shown(world, f"log.{name}") for name in ("visits", "tours", "trips"))
    grace_ends(world)
    world.catalog(NOON)
    assert (is_shown(world, "log.tours"), is_shown(world, "log.trips")) == (False, False)
    assert world.ids("log.visits") == ids
    assert {key.split("/")[0].partition(".")[2] for key in keys(world)} == {"log.visits"}


def test_a_name_that_is_free_again_gets_another_folder(world: World) -> None:
    ids = visits(world)
    write(world, visits=renamed("tours", "visits"))
    world.apply()
    other = VISITS.replace(FOLDER, "staging/others/")
    write(world, others=other)
    assert "others.yaml:2: table: log.visits is the former name of another table, which Glue shows until" in refusal(
        world
    )
    grace_ends(world)
    assert "the former name of another table" in refusal(world), "the catalog still shows it"
    write(world, others=None)
    world.apply()
    world.catalog(NOON)
    write(world, others=other)
    world.apply()
    world.drop(some_rows(2, utc(NOON)), stream="others")
    world.stream(NOON)
    world.catalog(NOON)
    assert (world.ids("log.tours"), len(world.ids("log.visits"))) == (ids, 2)
    folders = {key.split("/")[0].partition(".")[2] for key in keys(world)}
    assert folders == {"log.visits", "log.visits_2"}
    assert run_doctor(world.context, deep=True).is_clean


def test_a_new_table_may_say_what_it_was_elsewhere(world: World) -> None:
    """The same folder is applied to an installation that never had the former table."""
    assert world.apply(renamed("tours", "visits")).lines[1:] == (
        "create table log.tours with 2 columns",
        "create stream tours of log.tours at s3://staging/visits/",
    )


OTHER = a_table("log.other")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"other": OTHER + "was: log.visits\n"}, "other.yaml:13: was: log.visits and log.other are two tables"),
        (
            {"visits": VISITS + "was: log.other\n", "other": OTHER + "was: log.visits\n"},
            "visits.yaml:13: was: log.other and log.visits are two tables, and no table takes the name of another",
        ),
        ({"tours": renamed("tours", "visits").replace(FOLDER, "staging/t/")}, "was: log.visits is also defined in"),
        (
            {
                "visits": renamed("tours", "visits"),
                "trips": renamed("trips", "visits").replace(FOLDER, "staging/t/"),
            },
            "was: log.visits is also said to be the former name of",
        ),
        (
            {"visits": VISITS + "was: log.visits\n"},
            "visits.yaml:13: was: is the current name of the table; give the former one",
        ),
        ({"visits": VISITS + "was: visits\n"}, "visits.yaml:13: was: must be the former name of the table, as schema"),
    ],
    ids=["a name that exists", "a circle", "still defined", "two heirs", "itself", "no schema"],
)
def test_names_that_cannot_be_are_refused_with_their_place(world: World, files: dict[str, str], message: str) -> None:
    world.apply(VISITS, OTHER)
    write(world, **files)
    assert message in refusal(world)
    assert [str(table.name) for table in world.context.choose_tables(None)] == ["log.other", "log.visits"]


def test_an_iceberg_table_is_not_renamed(world: World) -> None:
    world.apply(VISITS + "iceberg: true\n")
    write(world, visits=renamed("tours", "visits", "iceberg: true\n"))
    assert "log.visits is an Iceberg table, too, which is not renamed: take `iceberg` out" in refusal(world)


def test_a_retired_table_takes_nothing_in_and_stays_readable(world: World) -> None:
    ids = visits(world)
    rows = some_rows(2, utc(NOON))
    world.drop(rows, stream="visits")
    world.discover(NOON)
    lines = VISITS.splitlines(keepends=True)
    without = "".join(line for line in lines if "streams:" not in line and "url:" not in line)
    write(world, visits=without + "retired: true\n")
    assert world.apply().lines == (
        "end stream visits of log.visits at s3://staging/visits/: objects already there are still converted",
        "retire log.visits: nothing more is taken in",
    )
    world.drop(some_rows(2, utc(NOON)), stream="visits")
    world.stream(NOON)
    for _ in range(2):
        world.catalog(MORNING)
        world.merge(MORNING, everything=True)
    world.catalog(MORNING)
    assert world.ids("log.visits") == ids + [row["id"] for row in rows]
    write(world, other=OTHER.replace("staging/other/", FOLDER))
    assert "move stream other" in " ".join(world.apply().lines) or world.stream(NOON).rows_out == 2
    write(world, other=None, visits=VISITS.replace(FOLDER, "staging/again/"))
    assert "take log.visits into use again" in world.apply().lines
