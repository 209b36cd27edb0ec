"""Documents of the Go engine's canvas editor."""
