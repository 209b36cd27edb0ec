"""Access: keys as they are known here, what a scope hides, and the table of who may ask for what."""
