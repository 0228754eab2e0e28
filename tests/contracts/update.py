"""``python -m tests.contracts.update``: write the golden files anew. Look at the difference before it goes into git."""

from __future__ import annotations

from tests.contracts.growth import FOLDER, contracts, path, write


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    known = contracts()
    for name, contract in known.items():
        write(name, contract)
    for stale in set(FOLDER.glob("*.json")) - {path(name) for name in known}:
        stale.unlink()


if __name__ == "__main__":
    main()
