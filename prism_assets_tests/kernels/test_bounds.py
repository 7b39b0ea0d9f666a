"""Values at the bounds of types, and lines with odd bytes: the kernel judges each as the line-by-line rules do."""

from __future__ import annotations

from typing import Any

from prism_assets.domain.tables.options import FREEZE
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, a_value, an_object
from prism_assets_tests.kernels.test_compiled import COLLECTED, MATCHED
from prism_assets_tests.kernels.test_undefined import under

# One value for columns of all types.
TYPES: list[tuple[str, dict[str, Any]]] = [
    ("string", {"length": 9}), ("json", {"length": 40}), ("boolean", {}), ("smallint", {}), ("integer", {}),
    ("bigint", {}), ("real", {}), ("double", {}), ("decimal", {"precision": 38, "scale": 0}),
    ("decimal", {"precision": 38, "scale": 38}), ("decimal", {"precision": 5, "scale": 2}), ("timestamp", {}),
    ("timestamp", {"time_unit": "milliseconds", "source_offset": "-03:30"}),
    ("timestamp", {"time_unit": "microseconds"}), ("date", {}), ("date", {"time_unit": "microseconds"}),
]  # fmt: skip
EVERY_TYPE = a_table(
    *(a_column(f"c{place}", kind, place, source="v", **more) for place, (kind, more) in enumerate(TYPES, start=2))
)
NUMBERS = [
    *(f"{sign}{2**bits + off}{end}" for sign in ("", "-") for bits in (15, 31, 53, 63, 64, 127) for off in (-1, 0, 1)
      for end in ("", ".0", ".9", "e0")),
    *(f"{digits}{end}" for digits in ("9" * 38, "9" * 39, "1" + "0" * 38, "1" * 41) for end in ("", ".5", "e-38")),
    "-0", "-0.0", "0e5", "-0E-5", "1E5", "1E+5", "1e-5", "12e-1", "0.000e9", "1e38", "1e39", "1e308", "1e309", "1e400",
    "-1e400", "1e-400", "1e99999999999999999999", "1e-99999999999999999999", "4.9e-324", "2.4703282292062327e-324",
    "2.4703282292062328e-324", "1.7976931348623158e308", "1.7976931348623159e308", "3.4028235677973365e38",
    "3.4028235677973366e38", "0.1", "0.005", "-0.005", "999.994", "999.995", "999.999", "1000", "0.29", "1e-38",
    "1e-39",
    "1500000000000", "1500000000000.5", "1500000000001", "253402300799", "253402300799.9994", "253402300799.9996",
    "253402300800", "-62135596800", "-62135596800.0005", "-62135596801", "1540339223.0005", "1540339223.0015", "0.9995",
    "1e18", "999999999999999999.5", "-0.0000005", "-1e-9", f"1{'0' * 5000}", f"1{'0' * 5000}e-5000",
    f"0.{'0' * 5000}1e5001",
]  # fmt: skip
TIMES = [
    f"{day}{clock}{zone}"
    for day in ("2016-12-31", "0001-01-01", "9999-12-31", "2000-02-29", "1900-02-29", "20161231", "0000-12-31")
    for clock in ("", "T23", " 23:59", "T23:59:59.9999999", "t23:59:60", "T24:00:00", "T24:00:00.000000001", "T235960",
                  "T23:59:59,123456789", "T23:59:59.1234567890", "T23:59:61", "T2359", " 235959")
    for zone in ("", "Z", "z", " UTC", "+00", " +0000", "-12:00", "+23:59", "+24:00", "+01:60", "[UTC]", "[+09:00]",
                 "Z[Nowhere]", "+09:00[Asia/Tokyo][u-ca=japanese]", "[u-ca=iso8601][Asia/Tokyo]", "Z[", " ")
]  # fmt: skip
OTHERS = ["true", "false", "null", "NaN", "Infinity", "-Infinity", "[]", "{}", '[ 1.0 , "a b" ]', "[NaN]", '["NaN"]']
TEXTS = ["", " 1", "1 ", "+1", "01", "1.", ".5", "0x1", "1_0", "NaN", "nan", "Infinity", "-Infinity", "inf", "TRUE",
         "t", "f", "true", "12345678é", "1234567😀", "\\u0000", "\\ud83d\\ude00", "\\/\\b\\f", "１",
         "é" * 40]  # fmt: skip


def test_values_at_the_bounds_of_types_are_read_alike(lake: Lake) -> None:
    values = [*NUMBERS, *OTHERS, *(f'"{text}"' for text in (*NUMBERS, *TIMES, *TEXTS))]
    outcome = lake.both(an_object(*map(a_value, values)), EVERY_TYPE)
    assert outcome.result.rows_out == len(values)


def test_exponents_of_any_size_are_read_alike(lake: Lake) -> None:
    zeros = "0" * 700_000
    lines = [a_value(f"1{zeros}e-700000"), a_value(f'"-0.{zeros}17e700001"'), a_value("1e-700000"), a_value("1e700000")]
    outcome = lake.both(an_object(*lines), a_table(a_column("v", "double", 2), a_column("s", "real", 3, source="v")))
    assert [row["v"] for row in outcome.rows] == [1.0, -1.7, 0.0, None]


def test_lines_with_odd_bytes_are_judged_alike(lake: Lake) -> None:
    lines = [
        a_value('1,"new":"').encode() + b'\xff"}',
        a_value('1,"new').encode() + b'\xc3":1}',
        a_value('1,"new":"').encode() + b'\xed\xa0\x80"}',
        b"\xef\xbb\xbf" + a_value("1").encode(),
        a_value("1").encode() + b"\r",
        a_value("1").encode() + b" \t\r",
        b"\r" + a_value("1").encode(),
        a_value("1").encode().replace(b",", b"\r,\r"),
        a_value("1").encode() + b"\x00",
        a_value("1").encode() + b"\x0b",
        a_value("1").encode() + b"\xc2\xa0",
        b" \t\r",
        b"\r\r",
        a_value('1,"\\u0000":1,"\\u0000":2').encode(),
        a_value('1,"\\u0076":2').encode(),
        a_value('1,"\\u0056":2,"V":3').encode(),
        a_value(f'1,"{"k" * 100_000}":1').encode(),
        a_value('1,"' + "\\u006b" * 1_000 + '":1').encode(),
        a_value('"\\ud800"').encode(),
        a_value('1,"\\udc00":1').encode(),
        a_value('1,"x":[{"\\ud83d":"\\ude00"}]').encode(),
    ]
    for table in (a_table(a_column("v", "string", 2)), COLLECTED, MATCHED, under(MATCHED, FREEZE)):
        for content in (b"\n".join(lines), b"\r\n".join(lines)):
            assert lake.both(content, table).result.lines_in == len(lines) - 2
