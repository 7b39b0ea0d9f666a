"""Converts JSON lines to typed rows: by the compiled kernel where a process has it, otherwise line by line."""
