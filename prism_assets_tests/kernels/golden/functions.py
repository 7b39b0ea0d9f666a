"""Calls every allowed function with sample arguments; `python -m prism_assets_tests.kernels.golden.functions` writes
them.

A line of the fixture is a call and its results for two rows. Read the difference after a renewal: each changed line
means columns with different values before and after an upgrade.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import duckdb

from prism_assets.kernels.expressions.allowed import BOUNDED, FUNCTIONS
from prism_assets.kernels.expressions.session import connect

FIXTURE = Path(__file__).with_name("functions.jsonl")
_SAMPLES = {
    "VARCHAR": ("'Aé b%c'", "'2026-01-02'"),
    "BOOLEAN": ("true", "false"),
    "DOUBLE": ("2.5", "-0.75"),
    "BIGINT": ("CAST(3 AS BIGINT)", "CAST(-7 AS BIGINT)"),
    "INTEGER": ("3", "1"),
    "DECIMAL": ("CAST(1.25 AS DECIMAL(9,2))", "CAST(-2.5 AS DECIMAL(9,2))"),
    "HUGEINT": ("CAST(3 AS HUGEINT)", "CAST(7 AS HUGEINT)"),
    "TIMESTAMP": ("TIMESTAMP '2026-03-04 05:06:07.891234'", "TIMESTAMP '1969-12-31 23:59:59'"),
    "DATE": ("DATE '2024-02-29'", "DATE '1970-01-01'"),
    "TIME": ("TIME '05:06:07.5'", "TIME '23:59:59'"),
    "INTERVAL": ("INTERVAL 1 MONTH", "INTERVAL 36 HOUR"),
    "BLOB": ("encode('aé')", "encode('')"),
    "JSON": ("""CAST('{"a":[1,2.50],"b":null}' AS JSON)""", "CAST('[1]' AS JSON)"),
    "ANY": ("'Aé b'", "'x'"),
    "T": ("3", "2"),
    "T[]": ("[3, 1, 2]", "[2, NULL]"),
    "ANY[]": ("[3, 1, 2]", "[2, NULL]"),
    "VARCHAR[]": ("['b', 'a']", "['x']"),
    "BIGINT[]": ("[3, 1]", "[2]"),
    "T[][]": ("[[3], [1, 2]]", "[[2]]"),
    "MAP(K, V)": ("map {'a': 1, 'b': 2}", "map {'c': 3}"),
    "K": ("'a'", "'c'"),
    "V": ("1", "3"),
    "UUID": ("CAST('0195f000-0000-7000-8000-000000000001' AS UUID)",) * 2,
}
_BY_HAND = """
CAST('a' AS VARCHAR) || 'b'|list_transform([1, 2], lambda x: x + n)|list_filter([1, 2, 3], lambda x: x > 1)
list_reduce([1, 2, 3], lambda a, b: a * 10 + b)|list_apply([1], lambda x: x)|apply([1], lambda x: -x)
array_apply([1], lambda x: x)|array_transform([1], lambda x: x * n)|array_filter([1, 2], lambda x: x > 1)
filter([1, 2], lambda x: x > n)|array_reduce([1, 2], lambda a, b: a + b)|reduce([1, 2], lambda a, b: a - b)
struct_pack(a := n, b := 'x')|row(n, 'x')|struct_extract({a: n}, 'a')|struct_insert({a: 1}, b := n)
struct_update({a: 1}, a := n)|struct_concat({a: 1}, {b: n})|struct_keys({a: n})|struct_values({a: n, b: 2})
struct_contains(row(1, 2), 2)|struct_position(row(1, 2), 2)|map(['a'], [n])|map_from_entries([{k: 'a', v: n}])
map_entries(map {'a': n})|map_keys(map {'a': n})|map_values(map {'a': n})|map_extract(map {'a': n}, 'a')
map_extract_value(map {'a': n}, 'a')|element_at(map {'a': n}, 'a')|map_contains(map {'a': n}, 'a')
map_concat(map {'a': 1}, map {'b': n})|map_contains_entry(map {'a': n}, 'a', 3)|map_contains_value(map {'a': n}, 3)
cardinality(map {'a': n})|list_value(n, 2)|array_value(n, 2)|list_pack(n, 2)|array_slice([1, 2, 3], 1, 2)
list_slice([1, 2, 3], 2, 3)|flatten([[1], [n]])|list_zip([1], ['a'])|array_zip([n], ['a'])
list_select(['a', 'b'], [2, 1])|array_select(['a', 'b'], [2])|list_where(['a', 'b'], [true, false])
array_where(['a', 'b'], [false, true])|list_sort([3, n], 'DESC')|array_sort([3, 1])|list_reverse_sort([1, n])
array_reverse_sort([1, 2])|grade_up([3, n])|list_concat([1], [n])|list_cat([1], [2])|array_concat([1], [2])
array_cat([n], [2])|list_append([1], n)|array_append([1], n)|array_push_back([1], n)|list_prepend(n, [1])
array_prepend(n, [1])|array_push_front([1], n)|array_pop_back([1, 2])|array_pop_front([1, 2])|list_reverse([1, n])
array_reverse([1, 2])|array_to_string([1, n], '-')|list_sum([1, n])|list_avg([1, n])|list_min([1, n])|list_max([1, n])
list_count([1, NULL])|list_first([n, 1])|list_last([n, 1])|list_product([2, n])|list_bit_and([7, 2])|list_bit_or([1, 2])
list_bit_xor([1, 3])|list_bool_and([true, false])|list_bool_or([true, false])|nullif(n, 3)|if(n > 1, 'a', 'b')
split_part('a,b', ',', 2)|date_add(DATE '2024-01-31', INTERVAL 1 MONTH)|days_in_month(DATE '2024-02-01')
md5_number_lower('a')|md5_number_upper('a')|typeof(n)|to_json({a: n})|row_to_json({a: n})|json_object('a', n)
json_array(1, n)|json_quote('a')|from_json('{"a": 1}', '{"a": "BIGINT"}')|from_json_strict('[1]', '["BIGINT"]')
json_transform('{"a": 1}', '{"a": "BIGINT"}')|json_transform_strict('{"a": 1}', '{"a": "BIGINT"}')
json_structure('{"a": [1]}')|json_merge_patch('{"a": 1}', '{"b": 2}')|json_extract('{"a": 1.10}', '$.a')
json_extract_path('{"a": 1}', '$.a')|json_extract_path_text('{"a": 1}', '$.a')|json_extract_string('{"a": "x"}', '$.a')
json_exists('{"a": 1}', '$.a')|json_value('{"a": 1}', '$.a')|json_contains('{"a": 1}', '{"a": 1}')
json_keys('{"a": 1}')|json_valid('{')|json_type('[1]')|json_array_length('[1, 2]')|'{"a": "x"}' ->> '$.a'
greatest(1, n)|least(1, n)|make_date(2024, 2, 29)|make_time(1, 2, 3.5)|make_timestamp(2024, 2, 29, 1, 2, 3.5)
make_timestamp_ms(1540339223123)|make_timestamp_ns(1540339223123456789)|strftime(DATE '2024-02-29', '%Y %j %a')
strptime('2024-02-29', '%Y-%m-%d')|try_strptime('x', '%Y')|date_part('week', DATE '2024-02-29')
datepart('year', DATE '2024-02-29')|date_trunc('month', DATE '2024-02-29')|datetrunc('year', DATE '2024-02-29')
date_diff('day', DATE '2024-02-28', DATE '2024-03-01')|datediff('hour', DATE '2024-02-28', DATE '2024-03-01')
date_sub('month', DATE '2024-01-31', DATE '2024-03-01')|datesub('day', DATE '2024-01-31', DATE '2024-03-01')
time_bucket(INTERVAL 7 DAY, DATE '2024-02-29')|lpad('a', 3, '*')|rpad('a', 3, '*')|repeat('ab', 3)|format_bytes(1000)
from_hex('4a')|unhex('4a')|unbin('01')|from_binary('01')|from_base64('YQ==')|decode(encode('a'))|chr(233)
to_base(255, 16)|uuid_extract_version(CAST('0195f000-0000-7000-8000-000000000001' AS UUID))
url_decode('a%20b+c')|regexp_extract_all('a1b2', '[0-9]')|regexp_matches('ab', 'b')|regexp_full_match('ab', 'b')
string_split_regex('a1b', '[0-9]')|'a' ^@ 'a'|2 ^ n|~n|@(-n)|5 & n|5 | n|1 << n|64 >> n|!__postfix(3)|xor(5, n)
like_escape('ab', 'a$%', '$')|ilike_escape('ab', 'A%', '$')|not_like_escape('ab', 'a%', '$')
not_ilike_escape('ab', 'A%', '$')
[1, 2] @> [1]|[1] <@ [1, 2]|[1, 2] && [n]|'a' ~ 'a'|'a' ~~ 'a%'|'a' !~~ 'b'|'a' ~~* 'A'|'a' !~~* 'A'|'a' ~~~ 'a*'
"""


def _calls() -> list[str]:
    """Every call, each once."""
    rows = duckdb.connect().execute(
        "SELECT function_name, parameter_types, varargs FROM duckdb_functions() WHERE function_type = 'scalar' "
        "ORDER BY ALL"
    )
    calls: dict[str, None] = {}
    for name, types, more in rows.fetchall():
        every = [*types, *([more, more] if more else [])]
        if name in FUNCTIONS and all(kind in _SAMPLES for kind in every):
            for place in range(2):
                calls[f'"{name}"({", ".join(_SAMPLES[kind][place] for kind in every)})'] = None
    written = itertools.chain.from_iterable(map(_split, _BY_HAND.splitlines()))
    return [*calls, *(call for call in written if call)]


def _split(line: str) -> list[str]:
    """The calls of a line; `||` and ` | ` belong to a call."""
    marked = line.replace("||", "\0").replace(" | ", "\1")
    return [part.replace("\0", "||").replace("\1", " | ").strip() for part in marked.split("|")]


def results() -> dict[str, list[str | None]]:
    """Returns each call's results for two rows, as text: long texts as their digest, and `fails` without a result of
    TRY.
    """
    connection = connect()
    found: dict[str, list[str | None]] = {}
    for call in _calls():
        query = (
            f"SELECT CASE WHEN tried IS NULL THEN 'fails' ELSE CAST(tried.v AS VARCHAR) END FROM "
            f"(SELECT TRY(struct_pack(v := ({call}))) AS tried FROM (VALUES (3), (0)) AS rows(n))"
        )
        try:
            found[call] = [_short(row[0]) for row in connection.execute(query).fetchall()]
        except duckdb.Error:
            continue
    connection.close()
    return found


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) < 40 else hashlib.sha256(text.encode()).hexdigest()[:16]


def without_results(found: dict[str, list[str | None]]) -> list[str]:
    """Returns allowed functions without a call in the fixture."""
    text = " ".join(found)
    return sorted(name for name in FUNCTIONS | BOUNDED.keys() if not _is_called(name, text))


def _is_called(name: str, text: str) -> bool:
    return f'"{name}"(' in text or f"{name}(" in text or (not name[0].isalpha() and f" {name} " in text)


def main() -> None:
    """Writes the fixture."""
    lines = [json.dumps([duckdb.__version__])]
    lines += [json.dumps([call, *texts], ensure_ascii=False) for call, texts in results().items()]
    FIXTURE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
