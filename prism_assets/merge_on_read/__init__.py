"""Reads join tables with every committed change. One read of PostgreSQL lists the objects.

The kernels of folds compute the records. Nothing is written.
"""
