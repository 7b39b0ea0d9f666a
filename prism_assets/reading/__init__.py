"""Reads the lake as catalog readers do: Glue knows the locations, S3 holds the objects.

Shares only the manifest format with the writing side, so tests judge the platform through this package.
"""
