"""Queue, status messages and dead letters on RabbitMQ."""
