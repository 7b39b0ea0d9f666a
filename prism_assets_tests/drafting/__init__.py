"""Tests of table files drafted from a sample of logs."""
