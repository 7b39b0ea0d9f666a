"""The requests of the demo: the expected content for readers equals the content of its lines."""

from __future__ import annotations

import gzip
import json
import random
from datetime import datetime, timezone
from typing import Any

from prism_local.demo.requests import Joined, RequestWriter

NIGHT = datetime(2026, 3, 1, 23, 50, tzinfo=timezone.utc)


def test_what_is_known_of_requests_is_what_their_lines_say() -> None:
    writer = RequestWriter("run", random.Random(1))
    lines: list[tuple[str, dict[str, Any]]] = []
    known = []
    for count, late in ((300, 0.3), (300, 0.3), (0, 0.3), (0, 0.0)):
        for key, body in writer.objects(NIGHT, 10, count, late=late):
            lines += [(key.partition("/")[0], json.loads(line)) for line in gzip.decompress(body).splitlines()]
        versions: dict[str, int] = {}
        for side, line in lines:
            if side == "request_back":
                versions[line["request_id"]] = max(line["version"], versions.get(line["request_id"], 0))
        pages = {line["request_id"] for side, line in lines if side == "request_front"}
        wanted = Joined(len(pages | versions.keys()), len(pages), len(versions), sum(versions.values()))
        assert writer.known == wanted
        known.append(wanted)
    assert writer.lines == len(lines)
    assert known[1].answers < 600, "some answers come later"
    assert (known[2].requests, known[2].answers) == (600, 600)
    assert known[3] == known[2]
    assert {line["time"][:10] for _, line in lines} == {"2026-03-01", "2026-03-02"}
    assert len({line["version"] for side, line in lines if side == "request_back"}) > 1
