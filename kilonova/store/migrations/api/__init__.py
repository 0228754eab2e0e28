"""The versions of the API database."""
