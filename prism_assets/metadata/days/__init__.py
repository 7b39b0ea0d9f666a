"""Statements on partitions and their publications."""
