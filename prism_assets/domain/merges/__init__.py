"""Merges: what is merged, and what becomes of a job that fails."""
