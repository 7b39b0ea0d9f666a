"""Splits documents of JSON into records, which take the place of lines."""
