"""Folds changes into records: `fold.py` from top to bottom, and what it is made of.

A change is a record of one change (`shape.py`). Records of a key that belong together (`sessions.py`) are merged column
by column (`merging.py`), which is associative and does not mind an order: what was merged before need not be known.
"""
