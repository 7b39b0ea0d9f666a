"""Objects in the lake: their facts, their keys, and when they are garbage."""
