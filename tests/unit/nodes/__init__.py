"""Node types: what each gives back for what it is given."""
