"""Repair: writes missing or damaged small objects again."""
