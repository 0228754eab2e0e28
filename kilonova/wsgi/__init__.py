"""Applications for WSGI servers that import them by name."""
