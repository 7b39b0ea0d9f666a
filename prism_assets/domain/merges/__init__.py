"""Merges: their plans, and the retry of failed jobs."""
