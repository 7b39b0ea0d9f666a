"""Garbage collection: deletes unneeded objects below the prefix of a table."""
