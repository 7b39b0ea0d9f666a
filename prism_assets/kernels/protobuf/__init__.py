"""Staging objects of protobuf messages: each message becomes an equivalent JSON line."""
