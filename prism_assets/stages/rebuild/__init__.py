"""Rebuild: days made again from their staging objects, under the definition in force."""
