"""The truth about objects and partitions, in PostgreSQL. One module of statements per concept.

`schema.sql` describes every table. Each module says beside its statements which rows they lock and why.
"""
