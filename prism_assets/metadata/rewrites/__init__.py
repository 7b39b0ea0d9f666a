"""Statements on rewrites, rebuilds and what they replace."""
