"""Staging objects of protobuf messages: each message becomes the line of JSON that says the same."""
