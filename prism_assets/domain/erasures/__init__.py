"""Erasures: rules, and their records in the lake."""
