"""Messages that only RabbitMQ deployments need: statuses, completions, and messages from foreign publishers."""
