"""Clusters of Apache Kafka: their settings, the identity of topics, and the reading of messages.

Only this package imports confluent_kafka, on first use: the client is an extra of the installation.
"""
