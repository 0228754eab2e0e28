"""Who may do what: oslo.policy over the rules of ``rules.py`` and the operator's policy files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from kilonova.api.rules import RULES, Rule
from kilonova.base.context import Context


def defaults() -> list[policy.RuleDefault]:
    """The rules as oslo.policy (and its sample generator) wants them."""
    return [_default(rule) for rule in RULES]


def _default(rule: Rule) -> policy.RuleDefault:
    deprecated = None
    if rule.before is not None:
        name, check, since = rule.before
        deprecated = policy.DeprecatedRule(
            name, check, deprecated_reason="Finer defaults.", deprecated_since=since or "21.0.0"
        )
    if rule.scoped:
        return policy.RuleDefault(rule.name, rule.check, scope_types=["project"], deprecated_rule=deprecated)
    return policy.RuleDefault(rule.name, rule.check, deprecated_rule=deprecated)


class Enforcer:
    """Implements ``call.Policy``. Policy files are read again when they change."""

    def __init__(self, conf: cfg.ConfigOpts | None = None) -> None:
        made = conf if conf is not None else _empty()
        opts.set_defaults(made, policy_file="policy.yaml")
        self._enforcer = policy.Enforcer(made)
        self._enforcer.suppress_deprecation_warnings = True
        self._enforcer.suppress_default_change_warnings = True
        self._enforcer.register_defaults(defaults())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._enforcer.load_rules()

    def allows(self, rule: str, context: Context, target: Mapping[str, Any]) -> bool:
        """Whether the rule allows; a token of the wrong scope is refused like any other."""
        if rule == "@":
            return True
        try:
            return bool(self._enforcer.authorize(rule, dict(target), context.credentials()))
        except (policy.InvalidScope, policy.PolicyNotRegistered):
            return False

    def is_admin(self, context: Context) -> bool:
        """Whether the caller is an administrator of the cloud."""
        target = {"project_id": context.project_id, "user_id": context.user_id}
        return self.allows("context_is_admin", context, target)


def _empty() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf(args=[], default_config_files=[], default_config_dirs=[])
    return conf
