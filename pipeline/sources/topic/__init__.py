"""Topics of a Kafka that another program fills: rows as Debezium tells them, or its outbox router's messages."""
