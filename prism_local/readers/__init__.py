"""Reads the same Iceberg tables with every reader that is installed, and judges what each of them shows.

`python -m prism_local.readers` asks all of them the questions of `questions` about the tables of the demo, and prints
one table. The right answers are those of prism's own reader of Glue. Each reader is a program of `clients` in a process
of its own, most of them in an environment of their own: they import nothing of this distribution.
"""
