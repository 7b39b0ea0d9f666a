"""`prism join explain`: values of sensitive columns decide which change wins, and are never shown."""

from __future__ import annotations

import pytest

from prism_assets.console import print_json
from prism_assets.reading.explain import explain_key
from prism_assets_tests.requests import Requests, a_join_table, front
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
CANARY = "canary-7f3a"


@pytest.mark.parametrize("column", ["page, type: string", "sent_at, type: timestamp"])
def test_values_of_sensitive_columns_are_in_no_explanation(
    world: World, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    text = a_join_table()
    world.apply(text.replace(f"{{name: {column}", f"{{name: {column}, sensitive: true"))
    requests = Requests(world)
    requests.arrive([("front", front("a", NOON, CANARY, sent=777)), ("front", front("a", NOON, CANARY, sent=1))], NOON)
    requests.show(NOON)
    explained = explain_key(world.reader(), requests.table, ["a"])
    print_json([explained])
    said = "\n".join([*explained.lines, capsys.readouterr().out])
    assert "(sensitive)" in said
    assert "has the greatest sequence" in said
    assert (CANARY if column.startswith("page") else "777") not in said
