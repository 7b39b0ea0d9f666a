"""Statements on records of join tables and their folds."""
