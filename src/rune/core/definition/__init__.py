"""The workflow definition: its model, its parser and the problems found in it."""
