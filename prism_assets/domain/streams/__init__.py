"""Streams: their objects, and the formats of these."""
