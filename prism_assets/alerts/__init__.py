"""Alerts: what people are told when runs fail, and how it reaches them."""
