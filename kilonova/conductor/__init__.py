"""The conductor: drives flows, and is the only one that reads and writes databases for hosts and the scheduler."""
