"""Folds against the model of records."""
