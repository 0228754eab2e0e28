"""The versions of cells' databases."""
