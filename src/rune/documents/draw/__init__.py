"""Drawings of workflows: a layered layout, SVG and Mermaid. One layout serves the command line, the API and editors."""
