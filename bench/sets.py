"""Sets of lines to measure the kernel with: bench, wide, nested, and odd in several shares. The same for each seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from bench.conversion import stored
from bench.platform import AGENTS, TABLE, TABLE_HEAD, log_lines
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file

START = datetime(2026, 3, 1, 20, tzinfo=timezone.utc)
RECEIVED = datetime(2026, 3, 2, 3, tzinfo=timezone.utc)
_WORDS = re.findall(
    r"\w+",
    "salt pepper garlic onion tomato basil olive butter flour sugar chicken beef fish rice noodle soup salad bread "
    "cheese milk egg bake fry grill roast simmer chop slice mix stir serve plate hot cold fresh sweet sour bitter",
)
_WIDE = (
    TABLE_HEAD
    + """\
columns:
  - {{name: time, type: timestamp, source: event_time, required: true}}
  - {{name: received, type: timestamp, time_unit: milliseconds}}
  - {{name: request_id, type: string, length: 36}}
  - {{name: user_id, type: bigint}}
  - {{name: session, type: string, length: 64}}
  - {{name: path, type: string, length: 2000}}
  - {{name: query, type: string, length: 2000}}
  - {{name: title, type: string, length: 500}}
  - {{name: body, type: string, length: 4000}}
  - {{name: ua, type: string, length: 500}}
  - {{name: referer, type: string, length: 500}}
  - {{name: country, type: string, length: 2}}
  - {{name: language, type: string, length: 8}}
  - {{name: status, type: integer}}
  - {{name: attempt, type: smallint}}
  - {{name: bytes, type: bigint}}
  - {{name: elapsed, type: double}}
  - {{name: score, type: real}}
  - {{name: premium, type: boolean}}
  - {{name: price, type: "decimal(12,2)"}}
  - {{name: tax, type: "decimal(9,4)"}}
  - {{name: order_number, type: bigint}}
  - {{name: quantity, type: integer}}
  - {{name: birthday, type: date}}
  - {{name: ordered_at, type: timestamp}}
"""
)
_NESTED = (
    TABLE_HEAD
    + """\
columns:
  - {{name: time, type: timestamp, source: ts, required: true}}
  - {{name: event, type: string, length: 64}}
  - {{name: user_id, type: bigint, source: "$.user.id"}}
  - {{name: plan, type: string, source: "$.user.plan.name", length: 32}}
  - {{name: geo, type: json, source: "$.user.geo", length: 400}}
  - {{name: device, type: json, length: 2000}}
  - {{name: items, type: json, length: 8000}}
  - {{name: first_sku, type: string, source: "$.items[0].sku", length: 32}}
  - {{name: total, type: "decimal(12,2)", source: "$.totals.gross"}}
  - {{name: elapsed, type: double}}
"""
)


@dataclass(frozen=True)
class LineSet:
    """One set: the text of its table file, its lines by count and seed, and the facts that all systems agree on."""

    name: str
    table_text: str
    lines: Callable[[int, int], list[bytes]]
    facts: str

    @property
    def table(self) -> TableDefinition:
        """Returns the definition as a stored one, with ids of columns."""
        return stored(parse_table_file(self.table_text.format(table="bench"), "bench.yaml"))


def _bench(count: int, seed: int) -> list[bytes]:
    return log_lines(count, seed).splitlines()


def _when(rng: random.Random, seed: int, number: int) -> datetime:
    """Returns the time of a line. The lines of an object pass midnight when there are many."""
    return START + timedelta(seconds=seed * 7, milliseconds=number * 1_500 + rng.randrange(900))


def _instant(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(rng: random.Random, least: int, most: int) -> str:
    length = rng.randint(least, most)
    return " ".join(rng.choices(_WORDS, k=length // 3))[:length]


def _wide(count: int, seed: int) -> list[bytes]:
    """Lines of 25 mixed columns: long texts, decimals, dates, numbers in quotes."""
    rng = random.Random(seed)
    tokyo = timezone(timedelta(hours=9))
    lines = []
    for number in range(count):
        when = _when(rng, seed, number)
        row = {
            "event_time": _instant(when),
            "received": int(when.timestamp() * 1000) + 40,
            "request_id": f"{rng.getrandbits(128):032x}",
            "user_id": rng.randrange(1, 5_000_000) if rng.random() < 0.8 else None,
            "session": f"{rng.getrandbits(64):016x}",
            "path": f"/recipes/{rng.randrange(5000)}/steps",
            "query": "?q=" + _text(rng, 5, 60).replace(" ", "+"),
            "title": _text(rng, 20, 90) + (" été 料理" if rng.random() < 0.3 else ""),
            "body": _text(rng, 100, 400),
            "ua": rng.choice(AGENTS),
            "referer": f"https://example.com/recipes/{rng.randrange(5000)}",
            "country": rng.choice(("JP", "GB", "ES", "US", "ID")),
            "language": rng.choice(("ja", "en", "es", "id")),
            "status": rng.choice((200, 200, 200, 301, 404, 500)),
            "attempt": rng.choice((1, 1, 1, 2, 3)),
            "bytes": rng.randrange(100, 10_000_000),
            "elapsed": round(rng.expovariate(5), 6),
            "score": round(rng.random(), 4),
            "premium": rng.random() < 0.2,
            "price": round(rng.random() * 10_000, 2),
            "tax": f"{rng.random() * 100:.4f}",
            "order_number": str(rng.randrange(10**9, 10**12)),
            "quantity": str(rng.randrange(1, 20)),
            "birthday": f"{rng.randrange(1940, 2010)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
            "ordered_at": when.astimezone(tokyo).isoformat(timespec="seconds"),
        }
        lines.append(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode())
    return lines


def _nested(count: int, seed: int) -> list[bytes]:
    """Lines with three columns of JSON and five paths."""
    rng = random.Random(seed)
    lines = []
    for number in range(count):
        row = {
            "ts": _instant(_when(rng, seed, number)),
            "event": rng.choice(("view", "buy", "search", "save")),
            "user": {
                "id": rng.randrange(1, 5_000_000),
                "plan": {"name": rng.choice(("free", "plus", "pro")), "since": "2024-03-01"},
                "geo": {
                    "lat": round(rng.random() * 90, 5),
                    "lon": round(rng.random() * 180, 5),
                    "city": rng.choice(_WORDS),
                },
            },
            "device": {
                "os": rng.choice(("ios", "android", "web")),
                "v": [1, rng.randrange(20), 3],
                "ua": rng.choice(AGENTS),
            },
            "items": [
                {"sku": f"S{rng.randrange(10**6):06}", "n": rng.randrange(1, 5), "price": round(rng.random() * 100, 2)}
                for _ in range(rng.randrange(1, 4))
            ],
            "totals": {"gross": round(rng.random() * 300, 2), "net": round(rng.random() * 250, 2)},
            "elapsed": round(rng.expovariate(5), 6),
        }
        lines.append(json.dumps(row, separators=(",", ":")).encode())
    return lines


def _odd(share: float) -> Callable[[int, int], list[bytes]]:
    """Returns lines of the set bench. A share of them is odd in one of nine ways, five of which go to quarantine."""

    def lines(count: int, seed: int) -> list[bytes]:
        rng = random.Random(f"odd{seed}")
        return [_oddly(rng, line) if rng.random() < share else line for line in _bench(count, seed)]

    return lines


def _oddly(rng: random.Random, line: bytes) -> bytes:
    match rng.randrange(9):
        case 0:  # cut
            return line[: rng.randrange(10, len(line))]
        case 1:  # a key twice
            return line.replace(b'"status":', b'"status":4,"status":')
        case 2:  # no time
            return line.replace(b'"event_time"', b'"when"')
        case 3:  # no UTF-8
            return line.replace(b'"path":"', b'"path":"\xff\xfe')
        case 4:  # too old
            return line.replace(b"2026-03-0", b"2016-03-0", 1)
        case 5:  # text for a number
            return line.replace(b'"status":', b'"status":"x').replace(b',"elapsed"', b'","elapsed"')
        case 6:  # another number, and a field without a column
            return line.replace(b'"user_id":', b'"user_id":1.5e3,"u2":')
        case 7:  # text or an object for a boolean
            return line.replace(b'"premium":true', b'"premium":"t"').replace(b'"premium":false', b'"premium":{"a":[1]}')
        case _:
            return line.replace(b'"elapsed":', b'"elapsed":NaN,"e2":')


_BENCH_FACTS = "count(DISTINCT request_id), sum(user_id)::BIGINT, sum(status)::BIGINT, round(sum(elapsed), 3)"
BENCH = LineSet("bench", TABLE, _bench, _BENCH_FACTS)
WIDE = LineSet(
    "wide",
    _WIDE,
    _wide,
    "count(DISTINCT request_id), sum(user_id)::BIGINT, sum(length(title))::BIGINT, sum(length(body))::BIGINT, "
    "sum(order_number)::BIGINT, sum(quantity)::BIGINT, sum(price)::DECIMAL(18,2), sum(tax)::DECIMAL(18,4), "
    "max(birthday)::VARCHAR, epoch_ms(max(received)), epoch_ms(max(ordered_at)), round(sum(elapsed), 3)",
)
NESTED = LineSet(
    "nested",
    _NESTED,
    _nested,
    "sum(user_id)::BIGINT, count(DISTINCT plan), count(geo), count(device), count(items), count(DISTINCT first_sku), "
    "sum(total)::DECIMAL(18,2), round(sum(elapsed), 3)",
)
ODD = {share: LineSet(f"odd {share:g} %", TABLE, _odd(share / 100), _BENCH_FACTS) for share in (0.1, 1.0, 10.0)}
