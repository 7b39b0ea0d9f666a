"""Tests of table files that are drafted from a sample of logs."""
