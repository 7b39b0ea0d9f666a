"""Some two hundred expressions give the same columns whichever way their lines were read, hostile ones included."""

from __future__ import annotations

from hypothesis import given, settings

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import Rejection
from prism_assets_tests.kernels.builders import a_column, a_table
from prism_assets_tests.kernels.test_both_ways import LINES, agree

TEXT = """
lower({c})|upper({c})|length({c})|trim({c})|{c} || '!'
reverse({c})|md5({c})|sha256({c})|{c} = 'x'|{c} IS NULL|ascii({c})
coalesce({c}, 'none')|substr({c}, 2, 2)
replace({c}, 'a', 'b')|regexp_replace({c}, '[0-9]+', '#', 'g')|contains({c}, 'e')
try_cast({c} AS INTEGER)|CAST({c} AS DOUBLE)|CAST({c} AS TIMESTAMP)
mask({c}, 2)|url_host({c})|split_part({c}, 'T', 1)
regexp_extract({c}, '(.)$', 1)|nullif({c}, '')|strip_accents({c})
encode({c}) IS NULL|unicode({c})|{c}[1:3]|hash({c})
string_split({c}, '-')|CASE WHEN {c} LIKE '%1%' THEN 1 ELSE 0 END|{{a: {c}}}
to_json({c})|hex({c})|jaro_similarity({c}, 'abc')
"""
NUMBER = """
{c} + 1|{c} * 2|{c} // 3|{c} % 7|abs({c})|-{c}
sign({c})|{c} > 0|{c} IS NULL|CAST({c} AS VARCHAR)|round({c}, -1)|sqrt({c})
greatest({c}, 5)|{c} BETWEEN 1 AND 9|{c} IN (1, 2, 3)|to_json({c})|CAST({c} AS SMALLINT)|[{c}, 1]|{{n: {c}}}|ln({c})
coalesce({c}, 0)|nullif({c}, 0)|hash({c})
1 / {c}|isfinite(CAST({c} AS DOUBLE))|{c} * 1e300|CASE {c} WHEN 1 THEN 'one' END
"""
TIME = """
year({c})|month({c})|day({c})|hour({c})
unix_ms({c})|epoch({c})|date_trunc('hour', {c})|strftime({c}, '%Y-%m')|{c} IS NULL
CAST({c} AS DATE)|at_offset({c}, '+09:00')|{c} + INTERVAL 1 DAY|dayname({c})|last_day({c})|CAST({c} AS VARCHAR)
date_diff('day', {c}, TIMESTAMP '2020-01-01')|{c} > TIMESTAMP '2018-01-01'
make_date(year({c}), 1, 1)|coalesce({c}, {c})
"""
READ = (
    (a_column("text", "string", 2, length=12), TEXT),
    (a_column("payload", "json", 3, length=40), TEXT),
    (a_column("path", "string", 4, sources=("$.payload.a", "$.rest[0]", "ignored")), TEXT),
    (a_column("n", "bigint", 5), NUMBER),
    (a_column("x", "double", 6), NUMBER),
    (a_column("at", "timestamp", 7, source_offset="+09:00"), TIME),
    (a_column("time", "timestamp", 1, required=True), TIME),
)
TYPES = ("string", "json", "bigint", "double", "timestamp", "boolean", "date")


def the_corpus() -> list[str]:
    """All expressions, each over one column."""
    return [
        template.strip().format(c=f'"{column.name}"')
        for column, templates in READ
        for line in templates.strip().splitlines()
        for template in line.replace("||", "\0").split("|")
        for template in [template.replace("\0", "||")]
    ]


def the_table() -> TableDefinition:
    """Returns a column for each expression, with types in turn, so that results of all kinds become values of all
    types.
    """
    computed = [
        a_column(
            f"e{number}", TYPES[number % len(TYPES)], 10 + number, value=text, length=30 if number % 7 < 2 else None
        )
        for number, text in enumerate(the_corpus())
    ]
    columns = (*(column for column, _ in READ), *computed)
    rejections = (Rejection(when="CAST(text AS INTEGER) = 1", reason="one"), Rejection(when="x < 0", reason="below"))
    return a_table(
        columns=columns,
        computed=tuple(column.name for column in computed),
        keep="n IS NULL OR n % 5 > 0",
        reject=rejections,
    )


TABLE = the_table()


def test_the_corpus_is_large_and_allowed() -> None:
    from prism_assets.kernels.expressions.check import problems_of_table

    assert len(the_corpus()) >= 190
    assert problems_of_table(TABLE) == []


@settings(max_examples=12, deadline=None)
@given(LINES)
def test_any_lines_give_the_same_rows_counts_and_quarantine(lines: list[bytes]) -> None:
    agree(lines, TABLE)
