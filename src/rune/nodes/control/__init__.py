"""Node types that route, fan out, join, wait and end."""
