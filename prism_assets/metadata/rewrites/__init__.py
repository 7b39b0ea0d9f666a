"""Statements on rewrites and rebuilds, and on replaced objects."""
