"""The kernel: what every service stands on, and which knows nothing of servers."""
