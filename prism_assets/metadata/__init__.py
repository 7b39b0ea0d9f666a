"""The truth about objects and partitions, in PostgreSQL. One module of statements per concept.

The schema is `migrations/versions/`; each module says beside its statements which rows they lock and why.
"""
