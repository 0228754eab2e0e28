"""The service that drives the flows and answers the hosts."""
