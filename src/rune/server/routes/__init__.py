"""The resources of the API, one module each."""
