"""Choosing hosts: Placement's candidates, filters, weighers, and the record of why."""
