"""Fold: makes the records of join tables of their changes."""
