"""Merge: small objects to merged objects."""
