"""Adopt: looks at an installation of the published design, and drafts its tables. Changes nothing there."""
