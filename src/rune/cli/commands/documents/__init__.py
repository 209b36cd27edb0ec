"""The commands that work on workflow documents: check, test, convert, draw, import; and the node types they use."""
