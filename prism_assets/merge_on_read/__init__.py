"""Readers of join tables who see every change that is committed: PostgreSQL says what there is, and is read once.

What records are is decided by the kernels that fold, and nothing is written.
"""
