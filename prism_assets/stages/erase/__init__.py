"""Erasure: rows that match a predicate leave the lake, and nothing that matches comes into it any more."""
