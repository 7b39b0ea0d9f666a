"""Metrics of the whole lake, from PostgreSQL alone: what tables wait for, what was done, what needs a person."""
