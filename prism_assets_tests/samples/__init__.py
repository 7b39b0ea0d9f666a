"""Tests of what is done with a sample of logs."""
