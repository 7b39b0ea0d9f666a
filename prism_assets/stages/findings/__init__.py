"""Subjects that findings are about, one module each; `registry.py` lists them, and every screen renders that list."""
