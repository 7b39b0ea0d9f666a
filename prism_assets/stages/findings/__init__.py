"""Subjects of findings, one module each. `registry.py` lists the subjects, and every screen renders the list."""
