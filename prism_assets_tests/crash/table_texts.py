"""Parts of table files that lives begin with, or that their steps change."""

KEEP = 'keep: "id > 0"\n'
"""The filter of a table's file. Filtered rows of a drop have the id 0."""
OLD_FORMAT = "timestamps: milliseconds\n"
LINKED = "symlink: true\n"
REFUSING = "reject: [{when: \"time < TIMESTAMP '2026-03-01 11:30'\", reason: not_yet}]\n"
EXTRA = '  - {name: extra, url: "s3://staging/extra/"}\n'
NOISE = '  - {name: noise, url: "s3://staging/noise/", discard: true}\n'
SAID = "{name: said, type: string, value: \"'yes'\"}"
NUMBER = '{name: number, type: integer, value: "7"}'
JOIN = """\
schema: log
table: parts
key: [id]
streams: [{name: parts, url: "s3://staging/parts/", group: part}]
groups: {part: null}
columns: [{name: time, type: timestamp}, {name: id, type: bigint}]
window: 1h
lateness: 2h
merge: {interval: 0}
accept: {from: arrival}
"""
