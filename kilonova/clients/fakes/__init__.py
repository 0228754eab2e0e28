"""The neighbours in memory: true bookkeeping, and failures to order. For tests and for trying things out."""
