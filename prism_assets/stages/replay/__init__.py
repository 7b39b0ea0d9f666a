"""Replay: lines in quarantine that are rows under the definition in force become such."""
