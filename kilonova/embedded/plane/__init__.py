"""The local network plane of the one-command mode: real networks for real guests on this host."""
