"""Job states: upper-case words with flags, short codes, cut columns, `CANCELLED by 1000`, lists; folded to ours."""

import re
from collections.abc import Sequence
from typing import Any

from ones_slurm.model.cluster import JobState

# Slurm's base states with their short codes, and what each means for a decision.
_BASE = {
    "PENDING": ("PD", JobState.PENDING),
    "RUNNING": ("R", JobState.RUNNING),
    "SUSPENDED": ("S", JobState.SUSPENDED),
    "COMPLETED": ("CD", JobState.DONE),
    "CANCELLED": ("CA", JobState.FAILED),
    "FAILED": ("F", JobState.FAILED),
    "TIMEOUT": ("TO", JobState.FAILED),
    "NODE_FAIL": ("NF", JobState.FAILED),
    "PREEMPTED": ("PR", JobState.FAILED),
    "BOOT_FAIL": ("BF", JobState.FAILED),
    "DEADLINE": ("DL", JobState.FAILED),
    "OUT_OF_MEMORY": ("OOM", JobState.FAILED),
}
# Flags that stand beside a base state, or alone in text; those with a state decide it.
_FLAGS = {
    "COMPLETING": ("CG", JobState.ENDING),
    "STAGE_OUT": ("SO", JobState.ENDING),
    "STOPPED": ("ST", JobState.SUSPENDED),
    "REQUEUED": ("RQ", JobState.PENDING),
    "REQUEUE_HOLD": ("RH", JobState.PENDING),
    "REQUEUE_FED": ("RF", JobState.PENDING),
    "RESV_DEL_HOLD": ("RD", JobState.PENDING),
    "SPECIAL_EXIT": ("SE", JobState.PENDING),
    "EXPEDITING": ("", JobState.PENDING),
    "REVOKED": ("RV", JobState.DONE),
    "CONFIGURING": ("CF", JobState.RUNNING),
    "RESIZING": ("RS", JobState.RUNNING),
    "SIGNALING": ("SI", JobState.RUNNING),
    "POWER_UP_NODE": ("", JobState.RUNNING),
    "LAUNCH_FAILED": ("", JobState.PENDING),
    "RECONFIG_FAIL": ("", JobState.PENDING),
    "UPDATE_DB": ("", JobState.PENDING),
}
# These outweigh the base state; a lone flag of another kind only tells what it implies.
_DECIDING = ("COMPLETING", "STAGE_OUT", "STOPPED", "REVOKED")
_STATES = _BASE | _FLAGS
_CODES = {code: word for word, (code, _) in _STATES.items() if code}
_CANCELLED_BY = re.compile(r"\s*CANCELLED by (\S+)\s*")
# Slurm's reasons for which a pending job starts as soon as there are nodes; with any other it waits for something else.
READY_REASONS = frozenset({"", "None", "Resources", "Priority", "Cleaning"})
# Those that Slurm takes back into the queue under the same id when the job may be requeued.
_MAY_COME_BACK = {"PREEMPTED", "NODE_FAIL"}


def read_states(value: Any) -> tuple[str, ...]:
    """Every state word in a text, a list or sacct's `{"current": …}`; UNKNOWN for a word that no release has."""
    if isinstance(value, dict):
        value = value.get("current")
    texts = value if isinstance(value, list | tuple) else [value]
    words = dict.fromkeys(word for text in texts if isinstance(text, str) for word in _words(text))
    return tuple(words) or ("UNKNOWN",)


def cancelled_by(text: str) -> str | None:
    """The uid in `CANCELLED by 100234`."""
    match = _CANCELLED_BY.fullmatch(text)
    return match[1] if match else None


def fold(words: Sequence[str]) -> JobState:
    """What these words mean for a decision."""
    for flag in _DECIDING:
        if flag in words:
            return _FLAGS[flag][1]
    known = [word for word in words if word in _STATES]
    base = [word for word in known if word in _BASE] or known
    return _STATES[base[0]][1] if base else JobState.UNKNOWN


def is_final(words: Sequence[str], *, requeues: bool) -> bool:
    """Whether nothing more will happen to a job that accounting shows in this state.

    `requeues`: the job may be requeued and, for PREEMPTED, the site's preemption mode requeues; PREEMPTED and NODE_FAIL
    are final only without it.
    """
    if requeues and any(word in _MAY_COME_BACK for word in words):
        return False
    return fold(words) in {JobState.DONE, JobState.FAILED}


def _words(text: str) -> list[str]:
    if _CANCELLED_BY.fullmatch(text):
        return ["CANCELLED"]
    return [_word(part, cut=text.rstrip().endswith("+")) for part in re.split(r"[+,\s]+", text) if part]


def _word(text: str, *, cut: bool) -> str:
    word = text.upper()
    if word in _STATES:
        return word
    if word in _CODES:
        return _CODES[word]
    whole = [state for state in _STATES if cut and state.startswith(word)]
    return whole[0] if len(whole) == 1 else "UNKNOWN"
