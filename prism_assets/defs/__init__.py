"""The Dagster side: assets, sensors and resources. The only importer of dagster.

A table file becomes four assets, and a fifth where it names Iceberg; the assets of one stage and one time zone share
one step, so that a run covers many tables. What to do is decided by PostgreSQL and by the stages; nothing here is
needed to keep the lake correct.
"""
