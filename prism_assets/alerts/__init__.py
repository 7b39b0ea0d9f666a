"""Alerts: messages to people about failed runs, and the ways to send them."""
