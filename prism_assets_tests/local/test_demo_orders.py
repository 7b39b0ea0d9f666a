"""The orders of the demo: the expected content for readers equals the content of its lines."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

from prism_local.demo.orders import ITEMS, ORDERS, OrderWriter

MORNING = datetime(2026, 3, 1, 6, tzinfo=timezone.utc)


def test_what_is_known_of_orders_is_what_their_lines_say() -> None:
    writer = OrderWriter("run", random.Random(7))
    orders: list[dict[str, Any]] = []
    for _, body in writer.objects(MORNING, MORNING + timedelta(hours=2), 3_000, 500):
        orders += map(json.loads, gzip.decompress(body).splitlines())
    timed = [order for order in orders if "placed_at" in order]
    items = [item for order in timed for item in order.get("items", []) if isinstance(item, dict)]
    plans = [((order["customer"] or {}).get("plan") or {}).get("code") for order in timed]
    pieces: Counter[str] = Counter()
    for item in items:
        pieces[item["sku"]] += item["quantity"]
    assert writer.known.by_plan == Counter(plans)
    assert writer.known.unnested == writer.known.children == pieces
    of_orders, of_items = writer.written[ORDERS], writer.written[ITEMS]
    assert (of_orders.good, of_orders.lines) == (len(timed), len(orders))
    assert of_items.good == len(items)
    unlisted = sum("items" not in order for order in orders)
    lines = unlisted + sum(len(order.get("items", [])) for order in orders)
    assert of_items.lines == lines
    assert of_orders.number_sum == sum(int(order["order_id"][:12]) for order in timed)
    assert min(len(orders) - len(timed), unlisted, lines - unlisted - len(items)) > 0, "each kind of fault occurs"
