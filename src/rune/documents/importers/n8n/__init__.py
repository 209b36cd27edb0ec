"""Import n8n exports."""
