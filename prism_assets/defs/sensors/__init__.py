"""Sensors: they ask PostgreSQL what waits, and request runs for it. All are on from the start."""
