"""Repair: small objects that are missing or damaged."""
