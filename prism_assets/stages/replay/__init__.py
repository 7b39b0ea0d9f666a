"""Replay: makes rows of quarantined lines that fit the definition in force."""
