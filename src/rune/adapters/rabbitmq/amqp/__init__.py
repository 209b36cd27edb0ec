"""An AMQP 0-9-1 client on asyncio."""
