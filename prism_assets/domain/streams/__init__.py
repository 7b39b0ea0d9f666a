"""Streams: which objects belong to them, and what is known of their content."""
