"""Rewrite: the one way to put objects in the place of others, whatever they were rewritten for."""
