"""Stream: staging objects to small objects."""
