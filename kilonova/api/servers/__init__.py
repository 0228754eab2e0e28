"""Servers: create, list, show, update, delete and the actions on them."""
