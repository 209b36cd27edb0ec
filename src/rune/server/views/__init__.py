"""Views of executions that the routes answer with: graphs, node runs, pages, figures and parts of values."""
