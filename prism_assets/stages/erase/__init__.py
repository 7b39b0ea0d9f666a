"""Erasure: removes matching rows from the lake, and keeps matching rows out of it for ever."""
