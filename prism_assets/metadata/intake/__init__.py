"""Statements on streams, staging objects, batches and quarantine."""
