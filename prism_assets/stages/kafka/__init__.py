"""Topics of Kafka: registration, the loop that spools messages, and the decisions of people."""
