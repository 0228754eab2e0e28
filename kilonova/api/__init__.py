"""The HTTP edge: one file or folder per resource, each beginning with its declarations."""
