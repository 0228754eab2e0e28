"""The verbs of ``nova-manage``, one file for each group of them."""
