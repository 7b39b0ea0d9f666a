"""Tests of spool objects."""
