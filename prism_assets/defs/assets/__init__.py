"""The stages' assets: one step per stage and time zone, over all its tables."""
