"""Adopt: audits an installation of the published design, and drafts table files. Changes nothing there."""
