"""The RPC interfaces: typed Protocols, each method with the version it came in."""
