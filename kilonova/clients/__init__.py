"""The neighbouring services: one Protocol and one implementation each."""
