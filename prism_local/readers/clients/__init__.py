"""The programs of readers. `harness` runs one of them; they import their reader and nothing of this distribution.

Each has the lines to paste between `# lines` and `# end`, which docs/readers.md shows as they stand, and below them
what the harness calls: `version()`, `close()` if there is anything to close, and either `answer(asked)`, which gives
rows, or for SQL `query(sql)` with `source(asked)`, the table in the words of the engine, and `TIME`, a time.
`remark(asked, rows)` tells of another way to ask the same, if it gives a wrong answer. NotImplementedError: the reader
has nothing to answer with.
"""
