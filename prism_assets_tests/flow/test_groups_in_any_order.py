"""Two tables divide the lines of one prefix, while the stages run in any order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime

from prism_assets_tests import nested
from prism_assets_tests.builders import a_table, as_lines, some_rows
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.flow.test_any_order import MERGE, AnyOrder
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.reliability import Figures

OTHERS = "log.others"
_LINES = """
SELECT table_name, sum(lines_in)::integer, sum(rows_out)::integer, sum(rows_elsewhere)::integer,
    (SELECT coalesce(sum(line_count), 0)::integer FROM prism_quarantine JOIN prism_staging_objects o
        USING (prism_staging_object_id) WHERE o.prism_table_id = t.prism_table_id)
FROM prism_staging_objects JOIN prism_tables t USING (prism_table_id) GROUP BY table_name, t.prism_table_id
"""


class GroupInAnyOrder(AnyOrder):
    """Between the lines of log.events stand those of log.others, which has the broken ones, too."""

    def __init__(self) -> None:
        self.others: dict[date, set[int]] = defaultdict(set)
        super().__init__()

    def _apply(self) -> None:
        events = self._routed(self._file(), "events", "{by: $.kind, in: [event]}")
        others = self._routed(a_table(OTHERS, merge=MERGE), "others", "{by: $.kind, otherwise: true}")
        assert self.world.apply(events, others, now=self._clock).problems == ()

    def _routed(self, file: str, table: str, route: str) -> str:
        stream = f'{{name: {table}, url: "s3://staging/{table}/"}}'
        assert stream in file
        return file.replace(stream, f'{{name: {table}, url: "s3://staging/events/", route: {route}}}')

    def _body(self, rows: Sequence[nested.Values], broken: int) -> bytes:
        start = datetime.fromisoformat(str(rows[0]["time"]).replace("Z", "+00:00"))
        more = some_rows(2, start, kind="view")
        self.others[start.date()] |= {row["id"] for row in more}
        first, *rest = [{**row, "kind": "event"} for row in nested.with_parts(rows)]
        return as_lines([more[0], first, more[1], *rest]) + b"broken\n" * broken

    def _come_to_rest(self) -> None:
        super()._come_to_rest()
        assert self.world.ids(OTHERS) == sorted(number for numbers in self.others.values() for number in numbers)

    def _check_ledger(self, rows: int) -> None:
        others = sum(map(len, self.others.values()))
        lines = rows + others + self.broken
        with self.world.context.database.begin() as connection:
            found = {row[0]: tuple(row[1:]) for row in connection.exec_driver_sql(_LINES)}
        assert found == {
            "events": (lines, rows, others + self.broken, 0),
            "others": (lines, others, rows, self.broken),
        }


def test_in_any_order_of_steps_each_line_is_in_one_table_of_its_group(
    services: Mapping[str, str], database_url: str, long: bool, figures: Figures
) -> None:
    play(GroupInAnyOrder, services, database_url, figures, examples=100 if long else 2, long=long)
