"""Registers staging objects: from listings and from messages."""
