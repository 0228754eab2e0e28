"""The host agent. It holds no database credentials: it talks to its conductor and to the neighbours."""
