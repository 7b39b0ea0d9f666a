"""The programs of readers. `harness` runs one of them; each imports its reader, and of this distribution
only modules of this folder, such as `trino_answers`.

Between `# lines` and `# end`, each has the lines to paste, shown unchanged in docs/reader-lines.md. Below them is the
code for the harness: `version()`, an optional `close()`, and either `answer(asked)`, which returns rows, or for SQL
`query(sql)` with `source(asked)`, the engine's spelling of the table, `TIME`, a time literal, and `EXPLODE`, the
function that makes a row of each element unless it is `unnest`. `remark(asked, rows)` describes another way to ask the
same question if its result is wrong. NotImplementedError: the reader cannot answer the question.
"""
