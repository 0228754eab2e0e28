"""Options of the scheduler, named as operators know them."""

from __future__ import annotations

from kilonova.base.config import group, option


@group("scheduler")
class SchedulerOptions:
    """[scheduler]"""

    max_attempts: int = option(3, min=1, help="How many hosts a build may try, the first one included.")
    max_placement_results: int = option(1000, min=1, help="How many candidates Placement is asked for at most.")
    workers: int = option(8, min=1, help="Decisions made at the same time.")


@group("filter_scheduler")
class FilterOptions:
    """[filter_scheduler]"""

    enabled_filters: list[str] = option(
        [
            "ComputeFilter",
            "ComputeCapabilitiesFilter",
            "ImagePropertiesFilter",
            "ServerGroupAntiAffinityFilter",
            "ServerGroupAffinityFilter",
        ],
        help="Filters, in the order in which they are asked.",
    )
    host_subset_size: int = option(1, min=1, help="The winner is drawn among this many of the best.")
    shuffle_best_same_weighed_hosts: bool = option(True, help="Whether equals are drawn, seeded with the request's id.")
    ram_weight_multiplier: float = option(1.0, help="Weight of free memory.")
    cpu_weight_multiplier: float = option(1.0, help="Weight of free vCPUs.")
    disk_weight_multiplier: float = option(1.0, help="Weight of free disk.")
    io_ops_weight_multiplier: float = option(-1.0, help="Weight of builds and moves under way.")
    build_failure_weight_multiplier: float = option(1000000.0, help="Weight of recent build failures (negated).")
    soft_affinity_weight_multiplier: float = option(1.0, min=0.0, help="Weight of group members on the host.")
    soft_anti_affinity_weight_multiplier: float = option(1.0, min=0.0, help="Weight of no group members on the host.")
    hypervisor_version_weight_multiplier: float = option(1.0, help="Weight of newer hypervisors.")
    num_instances_weight_multiplier: float = option(0.0, help="Weight of the servers on the host.")
    image_properties_default_architecture: str | None = option(None, help="Architecture of images that name none.")
