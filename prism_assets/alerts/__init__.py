"""Alerts: messages to people about failed runs and tables that need attention, and the ways to send them."""
