"""Drivers: objects that implement some of the role Protocols in ``roles``; what a driver can is what it implements."""
