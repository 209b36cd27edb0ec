"""Views of executions that the routes answer with: graphs, node runs, figures and parts of values."""
