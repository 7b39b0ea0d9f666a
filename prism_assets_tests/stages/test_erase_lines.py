"""`prism erase` and quarantined lines: matching lines go, and lines that cannot be judged lose their text."""

from __future__ import annotations

import gzip
import json

import pytest

from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.test_erase import NAME, NOON, TABLE, WHERE, arrive, erase, go_on, is_clean, later, users
from prism_assets_tests.stages.test_erase import world as world
from prism_assets_tests.world import World

USER = "{name: user_id, type: bigint}"
MAIL = "{name: mail, type: string}"


def kept_text(world: World) -> str:
    """Returns all text in quarantine."""
    return "".join(gzip.decompress(world.context.stores.get("lake", key)).decode() for key in keys(world, ".jsonl.gz"))


def test_lines_in_quarantine_go_where_they_match_and_lose_their_text_where_nobody_can_tell(world: World) -> None:
    world.apply(TABLE)
    broken = ['{"user_id": 42}', '{"user_id": 7}', '{"user_id": 42, "no', '{"user_id": "x"}']
    arrive(world, [1] * 20, broken=broken)
    arrive(world, [1] * 20, broken=broken[1:2])
    plan = plan_erasure(world.context, NAME, WHERE)
    assert (plan.lines, plan.lines_withheld, plan.objects) == (1, 2, 0)
    status = erase(world)
    assert (status.lines_erased, status.lines_withheld, status.rows_erased) == (1, 2, 0)
    with world.context.database.begin() as connection:
        counts = "SELECT lines_in, rows_out, rows_quarantined, rows_erased FROM prism_staging_objects ORDER BY 1 DESC"
        assert [tuple(row) for row in connection.exec_driver_sql(counts)] == [(24, 20, 3, 1), (21, 20, 1, 0)]
        (_key, *_) = connection.exec_driver_sql("SELECT object_key FROM prism_quarantine ORDER BY 1 DESC").scalars()
    assert len(keys(world, "/quarantine/")) == 3, "the lines of before lie there, and nobody is sent to them"
    assert go_on(world, later()).erasures[0].state == "proved"
    left = keys(world, "/quarantine/")
    assert len(left) == 2
    text = b"".join(gzip.decompress(world.context.stores.get("lake", key)) for key in left)
    assert b"42" not in text
    assert text.count(b"user_id") == 2
    assert is_clean(world)


@pytest.mark.parametrize(
    ("columns", "line", "where"),
    [
        (
            ["{name: mail, type: string, sensitive: true}", '{name: who, type: string, value: "md5(mail)"}'],
            {"mail": "ann@x"},
            "who = md5('ann@x')",
        ),
        (
            ["{name: phone, type: string, length: 9, sensitive: true}", "{name: who, type: string, value: phone}"],
            {"phone": "+4912345678"},
            "who = '+4912345678'",
        ),
        (
            ["{name: card, type: bigint}", "{name: who, type: string, value: card}"],
            {"card": "42 "},
            "who = '42'",
        ),
    ],
)
@pytest.mark.parametrize("comes", ["before", "behind"])
def test_what_a_computed_column_is_made_of_tells_as_much_as_that(
    world: World, columns: list[str], line: dict[str, str], where: str, comes: str
) -> None:
    refused = "reject: [{when: user_id < 0, reason: negative}]\n"
    world.apply(a_table(columns=["{name: user_id, type: bigint}", *columns]) + refused)
    aside = json.dumps({"time": "2026-03-01T12:00:00Z", "user_id": -1, "place": "home"} | line)
    arrive(world, [7] * 20, broken=[aside] if comes == "before" else ())
    erase(world, where)
    if comes == "behind":
        arrive(world, [7], broken=[aside])
    assert go_on(world, later()).erasures[0].state == "proved"
    left = [gzip.decompress(world.context.stores.get("lake", key)) for key in keys(world, "/quarantine/")]
    assert b"home" not in b"".join(left)


@pytest.mark.parametrize(
    ("before", "line", "erased", "withheld"),
    [
        ([USER], '{"user_id": 5, "mail": "ann@x"}', 1, 0),
        ([USER], '{"user_id": 5, "mail": "bob@x"}', 0, 0),
        ([USER, "{name: mail, type: string, source: [e_mail, mail]}"], '{"user_id": 5, "mail": "ann@x"}', 1, 0),
        ([USER, "{name: mail, type: string, source: e_mail}"], '{"user_id": 5, "mail": "ann@x"}', 0, 1),
        ([USER, "{name: mail, type: string, source: e_mail}"], '{"user_id": 5, "e_mail": "ann@x"}', 0, 1),
        ([USER, "{name: mail, type: string, source: e_mail}"], '{"user_id": 5, "mail": "bob@x"}', 0, 0),
    ],
)
def test_lines_are_judged_by_the_definition_in_force_too(
    world: World, before: list[str], line: str, erased: int, withheld: int
) -> None:
    """A column that the earlier reading lacked, or took from elsewhere, is not null in the line."""
    world.apply(a_table(columns=before))
    arrive(world, [7] * 20, broken=[line])
    world.apply(a_table(columns=[USER, MAIL]))
    plan = plan_erasure(world.context, NAME, "mail = 'ann@x'")
    assert (plan.lines, plan.lines_withheld) == (erased, withheld)
    status = erase(world, "mail = 'ann@x'")
    assert (status.lines_erased, status.lines_withheld) == (erased, withheld)
    assert go_on(world, later()).erasures[0].state == "proved"
    assert "ann@x" not in kept_text(world)
    assert is_clean(world)


def test_a_line_is_not_taken_for_one_without_a_value_that_its_definition_did_not_name(world: World) -> None:
    frozen = "contract: {new_fields: freeze}\n"
    world.apply(a_table(columns=[USER]) + frozen)
    arrive(world, [], broken=['{"time": "2026-03-01T12:00:00Z", "id": 5, "user_id": 5, "mail": "bob@x"}'])
    arrive(world, [7] * 20)
    world.apply(a_table(columns=[USER, MAIL]) + frozen)
    assert erase(world, "mail IS NULL AND user_id < 6").lines_erased == 0
    assert "bob@x" in kept_text(world)
    assert go_on(world, later()).erasures[0].state == "proved"
    assert run_replay(world.context, NAME, now=utc("2026-03-01T13:00")).errors == ()
    world.catalog("2026-03-01T13:00")
    assert users(world) == [5] + [7] * 20


@pytest.mark.parametrize(
    ("columns", "where", "withheld"),
    [
        ("{name: mail, type: string, stored: false, sensitive: true}", WHERE, 0),
        ("{name: mail, type: string, sensitive: true}", "mail = 'ann@x'", 1),
    ],
)
def test_lines_that_come_later_without_their_sensitive_values_hinder_no_proof(
    world: World, columns: str, where: str, withheld: int
) -> None:
    negative = "reject: [{when: user_id < 0, reason: negative}]\n"
    world.apply(a_table(columns=["{name: user_id, type: bigint}", columns]) + negative)
    arrive(world, [41, 42], broken=['{"time":"2026-03-01T12:00:00Z","user_id":1,"mail":"ann@x"}'])
    world.catalog("2026-03-02T00:10")
    erase(world, where, rows=1)
    world.catalog("2026-03-02T00:10")
    late = ['{"time":"2026-03-01T12:00:00Z","user_id":-1,"mail":"bob@x"}']
    arrive(world, [43], broken=late)
    world.catalog("2026-03-02T00:10")
    assert go_on(world).erasures[0].state == "waiting"
    assert go_on(world, later()).erasures[0].state == "proved"
    (key,) = keys(world, "/quarantine/")
    text = gzip.decompress(world.context.stores.get("lake", key))
    assert b'\\"user_id\\":-1' in text
    assert b"bob" not in text
    status = erase(world, where.replace("42", "41").replace("ann", "bob"), rows=1)
    assert status.lines_withheld == withheld, "of what was left out nobody can tell whether it matches another erasure"
    assert is_clean(world)


PHONE = "{name: phone, type: string, stored: false, sensitive: true}"


@pytest.mark.parametrize(
    ("columns", "is_judged_anew"),
    [([USER, MAIL, PHONE], False), ([USER, "{name: mail, type: string, source: [e_mail, mail]}"], True)],
    ids=["another column", "read from elsewhere"],
)
@pytest.mark.parametrize("comes", ["before", "behind"])
def test_a_definition_that_comes_while_an_erasure_waits_keeps_no_proof_away(
    world: World, columns: list[str], is_judged_anew: bool, comes: str
) -> None:
    """Lines are judged by the new definition, too. Those with another judgement are searched again."""
    line = ['{"user_id": 5, "mail": "bob@x", "e_mail": "ann@x"}']
    world.apply(a_table(columns=[USER, MAIL]))
    arrive(world, [7] * 20, broken=line if comes == "before" else ())
    world.catalog(NOON)
    erase(world, "mail = 'ann@x'")
    if comes == "behind":
        arrive(world, [7], broken=line)
    world.apply(a_table(columns=columns))
    status = go_on(world, later()).erasures[0]
    if is_judged_anew:
        assert status.state == "rewriting"
        assert str(status.waits_for).startswith("the next call, which searches 1 object: 1 row or line still matches")
        status = go_on(world, later(20)).erasures[0]
    assert (status.state, status.lines_withheld) == ("proved", int(is_judged_anew))
    assert is_judged_anew != ("bob@x" in kept_text(world))
    assert is_clean(world)


def test_a_column_that_is_not_asked_for_withholds_no_text(world: World) -> None:
    world.apply(a_table(columns=[USER, MAIL]))
    arrive(world, [7] * 20, broken=['{"user_id": 5, "mail": "bob@x", "age": "old", "phone": 0}'])
    world.apply(a_table(columns=[USER, MAIL, PHONE, "{name: age, type: bigint, stored: false}"]))
    status = erase(world, "mail = 'ann@x'")
    assert (status.lines_erased, status.lines_withheld) == (0, 0)
    assert go_on(world, later()).erasures[0].state == "proved"


RAW = "{name: mail_raw, type: string, source: mail, sensitive: true}"
REST = "{name: everything, type: json, source: '*', sensitive: true}"
IN_CONTACT = "{name: mail, type: string, source: $.contact.mail}"


@pytest.mark.parametrize(
    ("before", "read"),
    [
        ([RAW], MAIL),
        ([RAW, MAIL], MAIL),
        ([REST], MAIL),
        (["{name: contacts, type: json, source: '/^con.*/', sensitive: true}"], IN_CONTACT),
        (["{name: contact, type: json, sensitive: true}", IN_CONTACT], IN_CONTACT),
    ],
)
def test_nobody_can_tell_of_a_value_that_was_left_out_whatever_reads_it(
    world: World, before: list[str], read: str
) -> None:
    refused = "reject: [{when: user_id < 0, reason: negative}]\n"
    world.apply(a_table(columns=[USER, *before]) + refused)
    mail = {"contact": {"mail": "ann@x"}} if read == IN_CONTACT else {"mail": "ann@x"}
    line = {"time": "2026-03-01T12:00:00Z", "user_id": -1, **mail}
    arrive(world, [7] * 20, broken=[json.dumps(line)])
    assert "ann" not in kept_text(world)
    assert "user_id" in kept_text(world)
    world.apply(a_table(columns=[USER, read]) + refused)
    status = erase(world, "mail = 'ann@x'")
    assert (status.lines_erased, status.lines_withheld) == (0, 1)
    assert go_on(world, later()).erasures[0].state == "proved"


APP = """\
streams:
  - name: app
    url: "s3://staging/app/"
    columns: [{name: mail, value: "lower(contact) || '@x'"}]
"""
CONTACT = "{name: contact, type: string, stored: false}"


@pytest.mark.parametrize(("where", "kept"), [("user_id = 4711", ["ANN", "BOB"]), ("mail = 'ann@x'", ["BOB"])])
def test_lines_of_a_stream_that_left_with_what_it_computes_from_are_judged_as_then(
    world: World, where: str, kept: list[str]
) -> None:
    world.apply(a_table(columns=[CONTACT, USER, MAIL]).replace("streams:\n", APP))
    lines = [json.dumps({"time": None, "user_id": 42, "contact": name}) for name in ("ANN", "BOB")]
    world.drop([], stream="app", body="\n".join(lines).encode())
    arrive(world, [7] * 20)
    world.apply(a_table(columns=[USER, MAIL]))
    erase(world, where)
    assert go_on(world, later()).erasures[0].state == "proved"
    assert [name for name in ("ANN", "BOB") if name in kept_text(world)] == kept
    assert is_clean(world)


def test_lines_that_are_set_aside_are_of_the_stream_that_they_came_by(world: World) -> None:
    origin = ["{name: origin, type: string, source: '@stream'}", "{name: must, type: bigint, required: true}"]
    world.apply(a_table(columns=origin))
    world.drop([{"time": f"{NOON}:00Z", "id": 4242, "must": "none"}, {"time": f"{NOON}:00Z", "id": 1, "must": 1}])
    world.stream(NOON)
    world.catalog("2026-03-02T00:10")
    world.apply(a_table(columns=origin).replace("{name: events, url", "{name: evts, url"))
    assert erase(world, "origin = 'events'", rows=1).lines_erased == 1
    world.catalog("2026-03-02T00:10")
    assert go_on(world, later()).erasures[0].state == "proved"
    assert keys(world, ".jsonl.gz") == []


def test_a_plan_says_of_quarantined_lines_that_cannot_be_read_that_the_erasure_waits_for_them(world: World) -> None:
    world.apply(a_table(columns=[USER]))
    arrive(world, [7] * 20, broken=["broken"])
    (key,) = keys(world, "/quarantine/")
    (world.root / "buckets/lake" / key).write_bytes(b"no gzip")
    plan = plan_erasure(world.context, NAME, WHERE)
    assert plan.objects_unread == 1
    assert "1 object cannot be read, and it waits for that" in plan.sentences[-1]
    report = run_erase(world.context, NAME, WHERE)
    assert [item.state for item in report.erasures] == ["rewriting"]
    assert key in report.errors[0]
