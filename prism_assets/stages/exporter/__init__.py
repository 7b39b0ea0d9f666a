"""Metrics of the whole lake, from PostgreSQL alone: waiting and finished work, findings and checks."""
