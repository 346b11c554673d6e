"""How the launcher comes by Kafka and Weaviate: present → vendor's binary → package registries' own clients."""
