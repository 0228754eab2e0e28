"""What can go wrong with the embedded neighbours, each said so that a person knows what to do."""


class EmbeddedError(Exception):
    """The one-command mode cannot go on; the text names the part, the cause and, where there is one, the remedy."""


class PortTaken(EmbeddedError):
    """A port that a part needs is in use by another program."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(
            f"port {port} on 127.0.0.1, needed by {name}, is taken by another program: "
            "end that program or move all our ports with --port-offset"
        )
        self.name, self.port = name, port


class StateInUse(EmbeddedError):
    """Another running process owns the state directory."""
