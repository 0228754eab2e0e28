"""Every kind of error that may be shown to a person, with its HTTP code and its text.

A kind is raised where a caller cannot expect it; its text is safe to show to the user who asked. Anything raised that
is not a ``Fault`` is a defect or a failure of the world: users see its class name only, administrators its text.
Faults travel over the bus as ``ErrorRecord`` and are raised again, with their kind, at the caller.
"""

from __future__ import annotations

import traceback
from typing import Any, ClassVar

import msgspec


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it is journaled and sent: ``kind`` names the class, ``message`` is for people."""

    kind: str
    message: str
    code: int = 500
    safe: bool = False
    details: str = ""
    facts: dict[str, Any] = {}


class Fault(Exception):
    """Base of the kinds. ``facts`` fill the text and travel with it (only plain data)."""

    code: ClassVar[int] = 500
    text: ClassVar[str] = "An unexpected condition was met."
    kinds: ClassVar[dict[str, type[Fault]]] = {}

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.facts = facts
        self.message = message if message is not None else self.text.format(**facts)
        super().__init__(self.message)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Fault.kinds[cls.__name__] = cls


class BadRequest(Fault):
    code, text = 400, "The request is not valid."


class ValidationFailed(BadRequest):
    text = "Invalid input for field/attribute {field}. Value: {value}. {reason}"


class Unauthorized(Fault):
    code, text = 401, "The request you have made requires authentication."


class Forbidden(Fault):
    code, text = 403, "The action is not allowed."


class PolicyRefused(Forbidden):
    text = "Policy doesn't allow {rule} to be performed."


class OverQuota(Forbidden):
    text = "Quota exceeded for {resource}: Requested {requested}, but already used {used} of {limit} {resource}"


class NotFound(Fault):
    code, text = 404, "The resource could not be found."


class ServerNotFound(NotFound):
    text = "Instance {server} could not be found."


class FlavorNotFound(NotFound):
    text = "Flavor {flavor} could not be found."


class ImageNotFound(NotFound):
    text = "Image {image} could not be found."


class KeyPairNotFound(NotFound):
    text = "Keypair {name} not found for user {user}"


class HostNotFound(NotFound):
    text = "Compute host {host} could not be found."


class ServiceNotFound(NotFound):
    text = "Service {service} could not be found."


class AggregateNotFound(NotFound):
    text = "Aggregate {aggregate} could not be found."


class NetworkNotFound(NotFound):
    text = "Network {network} could not be found."


class PortNotFound(NotFound):
    text = "Port id {port} could not be found."


class VolumeNotFound(NotFound):
    text = "Volume {volume} could not be found."


class Conflict(Fault):
    code, text = 409, "The resource is in a state that does not allow this."


class ServerLocked(Conflict):
    text = "Instance {server} is locked"


class ServerBusy(Conflict):
    """A server's state forbids the action. Facts: action, server, attribute, state."""

    text = "Cannot '{action}' instance {server} while it is in {attribute} {state}"


class ServerNotReady(Conflict):
    text = "Instance {server} is not ready"


class HostIsDown(Conflict):
    text = "Service is unavailable at this time."


class PortInUse(Conflict):
    text = "Port {port} is still in use."


class NetworkAmbiguous(Conflict):
    text = "Multiple possible networks found, use a Network ID to be more specific."


class Gone(Fault):
    code, text = 410, "This resource is no longer available. No forwarding address is given."


class BadMediaType(Fault):
    code, text = 415, "Unsupported Content-Type"


class NotSupported(BadRequest):
    text = "The hypervisor of the server does not support this."


class NotImplementedHere(Fault):
    code, text = 501, "This is not implemented."


class NeighbourUnavailable(Fault):
    """Another service did not answer in time or is broken. Facts: neighbour, reason."""

    code, text = 503, "The {neighbour} service is unavailable: {reason}"


class DatabaseUnavailable(Fault):
    code, text = 503, "The database of {where} is unavailable."


class BusTimeout(Fault):
    code, text = 503, "No answer to {method} came from {target} in {seconds} s."


class NoSuchPeer(Fault):
    code, text = 503, "Nobody serves {target}."


class NewerPeerNeeded(Fault):
    code, text = 409, "{method} needs version {need} of {target}; the oldest one running has {have}."


class NoValidHost(Fault):
    """No host can take the server. Facts: reason, and a ``why`` record for administrators."""

    text = "No valid host was found. {reason}"


class RetriesExhausted(Fault):
    text = (
        "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for "
        "instance {server}."
    )


class BuildFailed(Fault):
    """The host could not build the guest, another one may. Facts: server, reason."""

    text = "Build of instance {server} failed: {reason}"


class BuildAborted(Fault):
    """The build failed for a reason that no other host would mend. Facts: server, reason."""

    text = "Build of instance {server} aborted: {reason}"


class ClaimLost(Fault):
    """Placement gave the room to somebody else between the answer and the claim."""

    code, text = 409, "The room was taken by another request."


class RunSuperseded(Fault):
    """A run was cancelled (by a delete) while its driver worked on it."""

    code, text = 409, "The operation was superseded by another one."


class RemoteError(Fault):
    """An exception of no kind of ours, raised at a peer; the message is its class name."""

    text = "An unexpected error occurred."


def record_of(error: BaseException) -> ErrorRecord:
    """What to journal or send of an exception. Only a Fault's message is safe for users."""
    if isinstance(error, Fault):
        return ErrorRecord(
            kind=type(error).__name__, message=error.message, code=error.code, safe=True, facts=error.facts
        )
    details = "".join(traceback.format_exception(error))
    return ErrorRecord(kind=type(error).__name__, message=str(error), details=details)


def fault_of(record: ErrorRecord) -> Fault:
    """The exception that a record stands for; kinds that are unknown here become RemoteError."""
    kind = Fault.kinds.get(record.kind)
    if kind is None:
        return RemoteError(record.kind, text=record.message, details=record.details)
    return kind(record.message, **record.facts)


def public_text(record: ErrorRecord) -> str:
    """The message for the owner of a server: a Fault's text, else the bare class name (never a foreign text)."""
    return record.message if record.safe else record.kind
