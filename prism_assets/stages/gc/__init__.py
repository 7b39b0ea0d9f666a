"""Garbage collection: what nobody needs any more below the prefix of a table is deleted."""
