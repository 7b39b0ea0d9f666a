"""Reads the lake as any reader of the catalog does: Glue says where, S3 says what. Knows nothing of the writing side.

Shares with it only the format of manifests. Tests judge the platform through this package.
"""
