"""Statements on erasures."""
