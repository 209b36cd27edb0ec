"""Wire: how facts and values are written down."""
