"""The assets of the three stages: one step per stage and time zone, over all its tables."""
