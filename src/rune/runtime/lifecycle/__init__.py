"""Starting and finishing executions."""
