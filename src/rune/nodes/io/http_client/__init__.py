"""The HTTP client of nodes: requests, responses, pagination, authentication and SSRF protection."""
