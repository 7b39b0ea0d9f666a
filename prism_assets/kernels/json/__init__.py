"""Converts JSON lines to typed rows: by columns if the result is the same, otherwise line by line."""
