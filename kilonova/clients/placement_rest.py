"""Placement over HTTP."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import requests

from kilonova.base import log
from kilonova.base.errors import BadRequest, Conflict, NeighbourUnavailable, NotFound
from kilonova.clients.placement import Candidates, Provider
from kilonova.clients.session import Neighbour, Params, code_of, text_of

LOG = log.of(__name__)

VERSION = "1.36"
ATTEMPTS = 8
CONCURRENT = "placement.concurrent_update"
INITIAL_RATIO = "initial_allocation_ratio"


class _Known:
    """What is known of a provider: its generation, and what was last seen or sent; None is unknown."""

    def __init__(self, generation: int | None = None) -> None:
        self.generation = generation
        self.inventory: dict[str, dict[str, float]] | None = None
        self.traits: frozenset[str] | None = None


class RestPlacement:
    """Implements ``Placement``. What was sent is remembered, so that a periodic report costs no request."""

    def __init__(self, http: Neighbour) -> None:
        self._http = http
        self._known: dict[str, _Known] = {}
        self._traits: set[str] = set()
        self._absent: set[str] = set()
        self._lock = threading.Lock()

    def _send(
        self, method: str, path: str, *, body: object = None, params: Params | None = None, repeatable: bool = True
    ) -> requests.Response:
        headers = {"OpenStack-API-Version": f"placement {VERSION}"}
        return self._http.send(method, path, body=body, params=params, headers=headers, repeatable=repeatable)

    # --- scheduling

    def candidates(self, query: list[tuple[str, str]]) -> Candidates:
        answer = self._send("GET", "/allocation_candidates", params=query)
        if answer.status_code == 400:
            raise BadRequest(f"Placement refuses the query: {text_of(answer)}")
        data = self._expect(answer, 200)
        return Candidates(requests=data["allocation_requests"], summaries=data["provider_summaries"])

    def claim(self, consumer: str, request: dict[str, Any], *, project_id: str, user_id: str) -> bool:
        """The first try assumes, as is nearly always true, that the consumer is new: one request."""
        wanted = request["allocations"]
        held: dict[str, Any] = {}
        generation: int | None = None
        for _ in range(ATTEMPTS):
            body: dict[str, Any] = {
                "allocations": merged(held, wanted),
                "project_id": project_id,
                "user_id": user_id,
                "consumer_generation": generation,
            }
            if request.get("mappings") and not held:
                body["mappings"] = request["mappings"]
            answer = self._send("PUT", f"/allocations/{consumer}", body=body)
            if answer.status_code == 204:
                return True
            if answer.status_code == 400:
                raise BadRequest(f"Placement refuses the claim: {text_of(answer)}")
            if answer.status_code != 409:
                raise self._http.unexpected(answer)
            if code_of(answer) != CONCURRENT and "onsumer generation" not in text_of(answer):
                return False
            now = self.allocations(consumer)
            # A Placement that dies between entering a consumer and its claim leaves one that holds nothing and is not
            # shown: of generation 0.
            unseen = 0 if generation is None and "onsumer generation" in text_of(answer) else None
            held, generation = now["allocations"], now.get("consumer_generation", unseen)
            if holds(held, wanted):
                return True
            time.sleep(random.uniform(0.01, 0.1))
        return False

    def claim_many(self, claims: dict[str, dict[str, Any]], *, project_id: str, user_id: str) -> bool:
        """Repeated when no answer came: were it done already, the repetition meets our own claims: a Conflict."""
        who = {"project_id": project_id, "user_id": user_id, "consumer_generation": None}
        body = {
            consumer: {
                "allocations": request["allocations"],
                **({"mappings": request["mappings"]} if request.get("mappings") else {}),
                **who,
            }
            for consumer, request in claims.items()
        }
        for _ in range(ATTEMPTS):
            answer = self._send("POST", "/allocations", body=body)
            if answer.status_code == 204:
                return True
            if answer.status_code == 400:
                raise BadRequest(f"Placement refuses the claim: {text_of(answer)}")
            if answer.status_code != 409:
                raise self._http.unexpected(answer)
            if "onsumer generation" in text_of(answer):
                if any(self.allocations(consumer)["allocations"] for consumer in claims):
                    raise Conflict("One of the servers holds allocations already.")
                return self._claim_each(claims, project_id=project_id, user_id=user_id)
            if code_of(answer) != CONCURRENT:
                return False
            time.sleep(random.uniform(0.01, 0.1))
        return False

    def _claim_each(self, claims: dict[str, dict[str, Any]], *, project_id: str, user_id: str) -> bool:
        """One after the other, all or none."""
        done: list[str] = []
        for consumer, request in claims.items():
            if not self.claim(consumer, request, project_id=project_id, user_id=user_id):
                for one in done:
                    self.release(one)
                return False
            done.append(consumer)
        return True

    def release(self, consumer: str) -> None:
        answer = self._send("DELETE", f"/allocations/{consumer}")
        if answer.status_code not in (204, 404):
            raise self._http.unexpected(answer)

    def allocations(self, consumer: str) -> dict[str, Any]:
        data: dict[str, Any] = self._expect(self._send("GET", f"/allocations/{consumer}"), 200)
        return data

    def consumers(self, provider: str) -> dict[str, dict[str, Any]]:
        answer = self._send("GET", f"/resource_providers/{provider}/allocations")
        if answer.status_code == 404:
            return {}
        found = self._expect(answer, 200)["allocations"]
        return {consumer: {"resources": held["resources"]} for consumer, held in found.items()}

    def usages(self, project_id: str, user_id: str | None = None) -> dict[str, int]:
        params = {"project_id": project_id} | ({"user_id": user_id} if user_id else {})
        found: dict[str, int] = self._expect(self._send("GET", "/usages", params=params), 200)["usages"]
        return found

    # --- providers

    def ensure_provider(self, uuid: str, name: str, *, parent: str | None = None) -> Provider:
        body = {"uuid": uuid, "name": name} | ({"parent_provider_uuid": parent} if parent else {})
        answer = self._send("POST", "/resource_providers", body=body)
        if answer.status_code == 200:
            known = self._knows(uuid)
            known.inventory, known.traits = {}, frozenset()
        elif answer.status_code == 409:
            answer = self._send("GET", f"/resource_providers/{uuid}")
            if answer.status_code == 404:
                raise Conflict(f"Placement has another resource provider named {name}.")
        data = self._expect(answer, 200)
        self._knows(uuid).generation = data["generation"]
        return Provider(
            uuid=uuid,
            name=data["name"],
            generation=data["generation"],
            parent=data.get("parent_provider_uuid"),
            root=data.get("root_provider_uuid"),
        )

    def ensure_inventory(self, uuid: str, inventory: dict[str, dict[str, float]]) -> None:
        """Keeps an allocation ratio that Placement has where ``inventory`` names none."""
        known = self._knows(uuid)
        for _ in range(ATTEMPTS):
            if known.generation is None or known.inventory is None:
                self._reread_inventory(uuid, known)
            assert known.inventory is not None
            wanted = completed(inventory, known.inventory)
            if wanted == known.inventory:
                return
            body = {"resource_provider_generation": known.generation, "inventories": wanted}
            answer = self._send("PUT", f"/resource_providers/{uuid}/inventories", body=body)
            if answer.status_code == 200:
                known.generation, known.inventory = self._http.read(answer)["resource_provider_generation"], wanted
                return
            known.generation = known.inventory = None
            if answer.status_code == 409 and code_of(answer) != CONCURRENT:
                raise Conflict(f"Placement refuses the inventory: {text_of(answer)}")
            self._expect_conflict(answer, uuid)
        raise self._contended(uuid)

    def _reread_inventory(self, uuid: str, known: _Known) -> None:
        answer = self._send("GET", f"/resource_providers/{uuid}/inventories")
        if answer.status_code == 404:
            raise NotFound(f"Placement has no resource provider {uuid}.")
        data = self._expect(answer, 200)
        known.generation, known.inventory = data["resource_provider_generation"], data["inventories"]

    def ensure_traits(self, uuid: str, traits: list[str]) -> None:
        """Standard traits that this Placement does not know are left out, with a warning."""
        known = self._knows(uuid)
        wanted = self._known_traits(traits)
        for _ in range(ATTEMPTS):
            if known.generation is None or known.traits is None:
                data = self._expect(self._send("GET", f"/resource_providers/{uuid}/traits"), 200)
                known.generation, known.traits = data["resource_provider_generation"], frozenset(data["traits"])
            if wanted == known.traits:
                return
            body = {"resource_provider_generation": known.generation, "traits": sorted(wanted)}
            answer = self._send("PUT", f"/resource_providers/{uuid}/traits", body=body)
            if answer.status_code == 200:
                known.generation, known.traits = self._http.read(answer)["resource_provider_generation"], wanted
                return
            known.generation = known.traits = None
            self._expect_conflict(answer, uuid)
        raise self._contended(uuid)

    def _known_traits(self, traits: list[str]) -> frozenset[str]:
        """Asked once for all hosts of the process."""
        with self._lock:
            unknown = [trait for trait in traits if trait not in self._traits and trait not in self._absent]
            if unknown:
                params = {"name": f"in:{','.join(sorted(unknown))}"}
                found = set(self._expect(self._send("GET", "/traits", params=params), 200)["traits"])
                for trait in set(unknown) - found:
                    if trait.startswith("CUSTOM_") and self._send("PUT", f"/traits/{trait}").status_code < 300:
                        found.add(trait)
                    else:
                        LOG.warning("Placement does not know the trait %s; it is left out", trait)
                        self._absent.add(trait)
                self._traits |= found
            return frozenset(trait for trait in traits if trait in self._traits)

    def ensure_aggregates(self, uuid: str, aggregates: list[str]) -> None:
        for _ in range(ATTEMPTS):
            data = self._expect(self._send("GET", f"/resource_providers/{uuid}/aggregates"), 200)
            if set(data["aggregates"]) == set(aggregates):
                return
            body = {
                "aggregates": sorted(aggregates),
                "resource_provider_generation": data["resource_provider_generation"],
            }
            answer = self._send("PUT", f"/resource_providers/{uuid}/aggregates", body=body)
            self._knows(uuid).generation = None
            if answer.status_code == 200:
                return
            self._expect_conflict(answer, uuid)
        raise self._contended(uuid)

    def aggregates(self, uuid: str) -> list[str]:
        answer = self._send("GET", f"/resource_providers/{uuid}/aggregates")
        if answer.status_code == 404:
            return []
        found: list[str] = self._expect(answer, 200)["aggregates"]
        return found

    def delete_provider(self, uuid: str) -> None:
        answer = self._send("GET", "/resource_providers", params={"in_tree": uuid})
        tree = {p["uuid"]: p for p in self._expect(answer, 200)["resource_providers"]}
        for one in [*reversed(below(tree, uuid)), *([uuid] if uuid in tree else [])]:
            answer = self._send("DELETE", f"/resource_providers/{one}")
            if answer.status_code == 409:
                raise Conflict(f"The resource provider {one} cannot be deleted: {text_of(answer)}")
            if answer.status_code not in (204, 404):
                raise self._http.unexpected(answer)
            with self._lock:
                self._known.pop(one, None)

    def _knows(self, uuid: str) -> _Known:
        with self._lock:
            return self._known.setdefault(uuid, _Known())

    def _expect(self, answer: requests.Response, status: int) -> Any:
        if answer.status_code != status:
            raise self._http.unexpected(answer)
        return self._http.read(answer)

    def _expect_conflict(self, answer: requests.Response, uuid: str) -> None:
        if answer.status_code == 404:
            raise NotFound(f"Placement has no resource provider {uuid}.")
        if answer.status_code != 409:
            raise self._http.unexpected(answer)
        time.sleep(random.uniform(0.01, 0.1))

    def _contended(self, uuid: str) -> NeighbourUnavailable:
        return NeighbourUnavailable(neighbour=self._http.name, reason=f"others keep changing the provider {uuid}")


def merged(held: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Allocations of both, by provider; where both take from one provider, what is wanted counts."""
    both = {provider: {"resources": part["resources"]} for provider, part in held.items()}
    return both | {provider: {"resources": part["resources"]} for provider, part in wanted.items()}


def holds(held: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a consumer holds all that is wanted."""
    return all(p in held and held[p]["resources"] == part["resources"] for p, part in wanted.items())


def completed(wanted: dict[str, dict[str, float]], present: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """An inventory with every field said, as Placement shows it.

    Where ours says no ``allocation_ratio``, the one that Placement has stays, so that an operator may set it there; a
    new inventory begins with ``initial_allocation_ratio``.
    """
    full = {}
    for name, ours in wanted.items():
        total = ours["total"]
        defaults = {"reserved": 0, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0}
        said = {field: value for field, value in ours.items() if field != INITIAL_RATIO}
        if INITIAL_RATIO in ours:
            defaults["allocation_ratio"] = ours[INITIAL_RATIO]
        if name in present:
            defaults["allocation_ratio"] = present[name].get("allocation_ratio", 1.0)
        full[name] = {**defaults, **said}
    return full


def below(tree: dict[str, dict[str, Any]], root: str) -> list[str]:
    """The providers under ``root``, parents before their children."""
    found: list[str] = []
    for one, record in tree.items():
        if record.get("parent_provider_uuid") == root:
            found += [one, *below(tree, one)]
    return found
