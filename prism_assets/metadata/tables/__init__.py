"""Statements on tables, their definitions and their columns."""
