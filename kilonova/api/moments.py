"""How the API writes moments in time."""

from __future__ import annotations

import datetime


def micro(moment: datetime.datetime | None) -> str | None:
    """``2026-01-31T12:00:00.000000``: UTC with microseconds and no zone; None stays None."""
    if moment is None:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


def second(moment: datetime.datetime | None) -> str | None:
    """``2026-01-31T12:00:00Z``: UTC to the second; None stays None."""
    if moment is None:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def now() -> datetime.datetime:
    """This moment in UTC."""
    return datetime.datetime.now(datetime.UTC)


def aware(moment: datetime.datetime) -> datetime.datetime:
    """The moment with its zone; one without is UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
