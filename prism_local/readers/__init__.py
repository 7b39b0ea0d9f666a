"""Reads the same Iceberg tables with every installed reader, and compares their answers.

`python -m prism_local.readers` asks all readers the questions of `questions` about the demo's tables, and prints a
table. prism's own reader of Glue gives the right answers. Each reader is a program in `clients` in its own process,
most of them in their own environment, and imports nothing of this distribution.
"""
