"""What runs now, and what attempts log."""
