"""What the caretaker may do by itself: the rules of the policy, and the decision for one plan.

Nothing is done unless somebody wrote down that it may be. Without a policy file every remedy only says what it would
do. A rule names what a remedy may touch, how long a finding must have held, how often a day, and how much at once;
windows name when. What keeps the host running or reachable is never touched, whatever a rule says.

Pure: the time, the time of day and what was done before are arguments. The file is read by ``care/policy.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from sexton.core.action import Action, Outcome, Plan
from sexton.core.finding import span
from sexton.core.ledger import Record

DAY = 86400.0
# One look alone proves nothing.
CONFIRMED = 2
# After an action that did not end a finding, it is left alone for this long, twice as long each further time.
REPEAT_AFTER = 6 * 3600.0
REPEAT_CAP = 7 * DAY

# Without these nobody gets at the host any more, or everything on it ends. Stopping one is a person's decision.
PROTECTED_UNITS = (
    "systemd-*",
    "init.scope",
    "dbus*",
    "ssh.service",
    "sshd.service",
    "ssh@*",
    "sshd@*",
    "getty@*",
    "serial-getty@*",
    "user@*",
    "user-runtime-dir@*",
    "*.slice",
    "*.mount",
    "*.swap",
    "*.target",
    "NetworkManager*",
    "networking.service",
    "ifup@*",
    "wpa_supplicant*",
    "cloud-*",
    "docker.service",
    "docker.socket",
    "containerd.service",
    "crio.service",
    "kubelet.service",
    "*ssm-agent*",
    "polkit*",
    "sexton*",
)


class Mode(StrEnum):
    OFF = "off"
    DRY_RUN = "dry-run"
    ACT = "act"


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What every remedy's rule says. Spans are seconds. ``only`` and ``never`` are shell patterns for the target."""

    mode: Mode = Mode.DRY_RUN
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    after: float = 300.0
    per_day: int = 3
    most_touched: int = 5
    seconds: float = 60.0


class Mask(StrEnum):
    AUTO = "auto"  # where it would come back else
    ALWAYS = "always"
    NEVER = "never"


class DisableUnit(Rule, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    mask: Mask = Mask.AUTO


class ResetUnit(Rule, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    start: bool = False


class PurgeMemcg(Rule, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """``kernel_seconds`` is the longest stay of one step in the kernel; ``drop_caches`` allows what costs others their
    page cache."""

    only: tuple[str, ...] = ("/*",)
    per_day: int = 12
    seconds: float = 120.0
    kernel_seconds: float = 0.5
    drop_caches: bool = False


class PruneImages(Rule, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """``unused_for`` is how old an image without a container must be."""

    most_touched: int = 20
    seconds: float = 120.0
    unused_for: float = 7 * DAY


class Remedies(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    disable_unit: DisableUnit = DisableUnit()
    reset_unit: ResetUnit = ResetUnit()
    purge_memcg: PurgeMemcg = PurgeMemcg()
    prune_images: PruneImages = PruneImages()

    def of(self, remedy: str) -> Rule:
        rule: Rule = getattr(self, remedy.replace("-", "_"))
        return rule


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """When something may be done: days of the week (0 is Monday), minutes of the day in the host's own time. One that
    ends before it begins ends on the next day."""

    days: frozenset[int]
    begins: int
    ends: int

    def holds(self, at: LocalTime) -> bool:
        if self.begins < self.ends:
            return at.weekday in self.days and self.begins <= at.minute < self.ends
        if at.minute >= self.begins:
            return at.weekday in self.days
        return at.minute < self.ends and (at.weekday - 1) % 7 in self.days


class LocalTime(NamedTuple):
    """The host's own time of the week."""

    weekday: int
    minute: int


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """``source`` says where it comes from; ``per_day`` bounds all remedies together."""

    source: str = "built in: nothing is changed"
    remedies: Remedies = Remedies()
    windows: tuple[Window, ...] = ()
    per_day: int = 10


class Verdict(StrEnum):
    ACT = "act"
    DRY_RUN = "dry-run"
    NO = "no"
    LATER = "later"


class Decision(msgspec.Struct, frozen=True):
    """``why`` is a sentence for a person."""

    verdict: Verdict
    why: str


def protected(target: str) -> bool:
    """Is this a unit that nobody but a person may stop?"""
    return any(fnmatchcase(target, pattern) for pattern in PROTECTED_UNITS)


def decide_before(
    policy: Policy, remedy: str, record: Record, before: Iterable[Action], now: float, local: LocalTime
) -> Decision | None:
    """What can be said before anybody has planned; None when it depends on the plan."""
    rule = policy.remedies.of(remedy)
    if rule.mode is Mode.OFF:
        return Decision(Verdict.NO, f"the policy switches {remedy} off")
    if record.is_muted(now):
        return Decision(Verdict.NO, "the finding is muted")
    if rule.mode is Mode.DRY_RUN:
        return None
    if now - record.opened < rule.after or record.looks < CONFIRMED:
        return Decision(Verdict.LATER, f"it must have held for {span(rule.after)}, in two looks at least")
    if policy.windows and not any(window.holds(local) for window in policy.windows):
        return Decision(Verdict.LATER, "outside the policy's windows")
    return _spent(policy, rule, remedy, record, tuple(before), now)


def decide(policy: Policy, plan: Plan) -> Decision:
    """May this plan be carried out unattended, if nothing spoke against it before?"""
    rule = policy.remedies.of(plan.remedy)
    if rule.mode is not Mode.ACT:
        return Decision(Verdict.DRY_RUN, f"{plan.remedy} is a dry run by the policy ({policy.source})")
    if (refused := bounds(rule, plan)) is not None:
        return Decision(Verdict.NO, refused)
    if not _matches(plan.target, rule.only):
        return Decision(Verdict.NO, f"the policy does not name {plan.target} in 'only' of {plan.remedy}")
    return Decision(Verdict.ACT, f"allowed by the policy ({policy.source})")


def bounds(rule: Rule, plan: Plan) -> str | None:
    """Why this plan reaches too far, whoever asks for it; None when it does not."""
    forgets_only = isinstance(rule, ResetUnit) and not rule.start
    if protected(plan.target) and not forgets_only:
        return f"{plan.target} keeps this host running or reachable; only a person may change it, by hand"
    if _matches(plan.target, rule.never):
        return f"the policy forbids {plan.remedy} to touch {plan.target}"
    if plan.touches > rule.most_touched:
        return f"it would touch {plan.touches} things, the policy allows {rule.most_touched} at once (most-touched)"
    return None


def _matches(target: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(target, pattern) for pattern in patterns)


def _spent(
    policy: Policy, rule: Rule, remedy: str, record: Record, before: tuple[Action, ...], now: float
) -> Decision | None:
    today = [action for action in before if now - action.begun < DAY]
    if len(today) >= policy.per_day:
        return Decision(Verdict.LATER, f"the day's budget of {policy.per_day} actions is spent")
    if sum(1 for action in today if action.plan.remedy == remedy) >= rule.per_day:
        return Decision(Verdict.LATER, f"the day's budget of {rule.per_day} actions of {remedy} is spent")
    same = [
        action for action in before if action.plan.fingerprint == record.fingerprint and action.plan.remedy == remedy
    ]
    if not same:
        return None
    last = max(same, key=lambda action: action.begun)
    wait = min(REPEAT_CAP, REPEAT_AFTER * 2.0 ** (len(same) - 1))
    # What was done and proved, and then came again, is news; what never went away is not.
    helped = last.outcome is Outcome.DONE and record.opened > last.begun
    if not helped and now - last.begun < wait:
        return Decision(Verdict.LATER, f"it was done before and did not end it; not again within {span(wait)}")
    return None
