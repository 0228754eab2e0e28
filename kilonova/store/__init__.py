"""The only place that knows SQL: the API and cell databases, one file per noun."""
