"""Nested orders of a shop, one object for two tables: the demo's nested table and its child table."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prism_local.demo.logs import Written

ORDERS, ITEMS = "orders", "order_items"
_PLANS = ("free", "pro", "team", None)
_BY_PLAN = "SELECT customer.plan.code, count(*) FROM {orders} WHERE {run} GROUP BY ALL"
_UNNESTED = (
    "SELECT item.sku, sum(item.quantity) FROM (SELECT unnest(items) AS item FROM {orders} WHERE {run}) "
    "WHERE item IS NOT NULL GROUP BY ALL"
)
_CHILDREN = "SELECT sku, sum(quantity) FROM {items} WHERE {run} GROUP BY ALL"

Order = dict[str, Any]


@dataclass(frozen=True)
class Nested:
    """Counts over orders, as written or as a reader sees them."""

    by_plan: Mapping[str | None, int]
    """Orders by the leaf `customer.plan.code`."""
    unnested: Mapping[str, int]
    """Pieces by sku, from the list `items` of the orders."""
    children: Mapping[str, int]
    """Pieces by sku, from the rows of the child table."""


@dataclass
class OrderWriter:
    """Makes objects of orders, and knows the rows of both tables that must result. Ids end with `run`."""

    run: str
    rng: random.Random
    written: Mapping[str, Written] = field(default_factory=lambda: {ORDERS: Written(), ITEMS: Written()})
    _by_plan: Counter[str | None] = field(default_factory=Counter)
    _by_sku: Counter[str] = field(default_factory=Counter)
    _numbers: Counter[str] = field(default_factory=Counter)

    @property
    def known(self) -> Nested:
        """The counts that readers must see for all objects yielded so far."""
        return Nested(dict(self._by_plan), dict(self._by_sku), dict(self._by_sku))

    def objects(self, start: datetime, end: datetime, orders: int, per_object: int) -> Iterator[tuple[str, bytes]]:
        """Yields (name, gzip body) of objects whose orders are spread evenly over [start, end)."""
        step = (end - start) / max(orders, 1)
        for first in range(0, orders, per_object):
            last = min(first + per_object, orders)
            lines = [self._line(start + step * number) for number in range(first, last)]
            for written in self.written.values():
                written.objects += 1
            name = f"{start + step * first:%Y/%m/%d/%H%M%S}_{self._numbers[ORDERS]:06d}.gz"
            yield name, gzip.compress("".join(f"{line}\n" for line in lines).encode(), 6)

    def _line(self, when: datetime) -> str:
        """Returns an order. One in two hundred is broken in one of three ways."""
        order = self._order(when)
        match self.rng.randrange(600):
            case 0:
                del order["placed_at"]
                self._count_broken(orders=1, items=len(order["items"]))
            case 1:
                del order["items"]
                self._count(order, [], broken_items=1)
            case 2:
                self._count(order, order["items"], broken_items=1)
                order["items"] = [*order["items"], "a voucher"]
            case _:
                self._count(order, order["items"])
        return json.dumps(order, separators=(",", ":"))

    def _count_broken(self, *, orders: int, items: int) -> None:
        self.written[ORDERS].broken += orders
        self.written[ITEMS].broken += items

    def _count(self, order: Order, items: list[Order], *, broken_items: int = 0) -> None:
        self._count_broken(orders=0, items=broken_items)
        _add(self.written[ORDERS], order["order_id"])
        plan = (order["customer"] or {}).get("plan") or {}
        self._by_plan[plan.get("code")] += 1
        for item in items:
            _add(self.written[ITEMS], item["item_id"])
            self._by_sku[item["sku"]] += item["quantity"]

    def _order(self, when: datetime) -> Order:
        """Returns an order of a guest, of a customer without a plan, or of one with a plan."""
        rng, plan = self.rng, self.rng.choice(_PLANS)
        customer = {"id": rng.randrange(1, 3_000), "displayName": f"Customer {rng.randrange(99)}"}
        return {
            "placed_at": (when + timedelta(milliseconds=rng.randrange(1000))).isoformat(timespec="milliseconds"),
            "order_id": self._id(ORDERS),
            "customer": None if rng.random() < 0.2 else customer | ({"plan": {"code": plan}} if plan else {}),
            "labels": {"channel": rng.choice(("web", "app")), f"test-{rng.randrange(9)}": "on"},
            "items": [self._item() for _ in range(rng.choice((0, 1, 1, 2, 3, 6)))],
        }

    def _item(self) -> Order:
        rng = self.rng
        return {
            "item_id": self._id(ITEMS),
            "sku": f"sku-{rng.randrange(20)}",
            "quantity": rng.randrange(1, 9),
            "price": f"{rng.randrange(100, 90_000) / 100:.2f}",
        }

    def _id(self, table: str) -> str:
        self._numbers[table] += 1
        return f"{self._numbers[table]:012d}-{self.run}"


def _add(written: Written, key: str) -> None:
    written.good += 1
    written.number_sum += int(key[:12])


def read_nested(query: Callable[[str], Sequence[Sequence[Any]]], schema: str, run: str) -> Nested:
    """Returns the counts that a reader of DuckDB's SQL sees for the orders of a play."""

    def counts(sql: str, key: str) -> dict[Any, int]:
        tables = {name: f"{schema}.{table}" for name, table in (("orders", ORDERS), ("items", ITEMS))}
        rows = query(sql.format(run=f"{key} LIKE '%-{run}'", **tables))
        return {value: int(number) for value, number in rows}

    return Nested(counts(_BY_PLAN, "order_id"), counts(_UNNESTED, "order_id"), counts(_CHILDREN, "item_id"))
