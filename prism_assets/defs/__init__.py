"""The Dagster side: assets, sensors and resources. Only this package imports dagster.

A table file becomes four assets, or five with Iceberg. All assets of one stage and one time zone share one step, so one
run covers many tables. PostgreSQL and the stages decide what to do; the lake stays correct without this package.
"""
