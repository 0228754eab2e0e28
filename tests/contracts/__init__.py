"""Suites of contracts that more than one implementation keeps, and the golden files of the RPC contracts."""
