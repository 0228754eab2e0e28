"""The RPC contracts: what services may ask of each other. See ``kilonova.base.rpc``."""
