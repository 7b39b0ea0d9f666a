"""Folds changes into records. Read `fold.py` first, from top to bottom.

A change is a record of one change (`shape.py`). Records and changes of one key within a window form a session
(`sessions.py`), and are merged column by column (`merging.py`). The merge is associative and commutative, so a fold
needs no history of earlier folds.
"""
