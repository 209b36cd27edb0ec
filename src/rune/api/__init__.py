"""The shapes of the responses of the HTTP API: the server encodes them, the client decodes them."""
