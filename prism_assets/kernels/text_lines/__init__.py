"""Divides lines of text into fields, which take the place of keys of JSON."""
