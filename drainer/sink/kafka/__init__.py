"""Kafka sink: changes as messages of topics."""
