"""What only RabbitMQ needs: status and completion messages, messages from foreign publishers."""
