"""RabbitMQ: a lean client, the topology, and the queue on it."""
