"""Sensors: they find waiting work in PostgreSQL, and request runs for it. All are on by default."""
