"""The domain, pure: records and the rules over them. Nothing here does I/O."""
