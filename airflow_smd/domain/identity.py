"""Who started a thing on AWS: the names and tags that make a crash repeatable."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

NAME_LIMIT = 63
"""Longest name of a SageMaker training or processing job (botocore: TrainingJobName)."""
_ATTEMPT_ROOM = len("-a99")
NAME_TAG, DEPLOYMENT_TAG = "airflow-smd:name", "airflow-smd:deployment"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """One Airflow task instance in one generation.

    Airflow's retry keeps the generation, so a retry finds what the earlier try started. Clearing the task
    begins a new generation, so the work is done again.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    generation: int = 1
    deployment: str = ""
    """Tells apart two Airflow deployments that share an AWS account and have the same DAGs."""

    @property
    def base_name(self) -> str:
        """Return a readable name, unique to this generation, with room for `-a99` within 63 characters.

        A long prefix is cut, never the hash, so two long names cannot collide.
        """
        key = "\0".join((self.deployment, self.dag_id, self.run_id, self.task_id, str(self.map_index)))
        tail = f"-{hashlib.sha256(key.encode()).hexdigest()[:12]}-g{self.generation}"
        prefix = re.sub(r"[^a-zA-Z0-9]+", "-", f"{self.dag_id}-{self.task_id}").strip("-") or "smd"
        return prefix[: NAME_LIMIT - _ATTEMPT_ROOM - len(tail)].rstrip("-") + tail

    def attempt_name(self, attempt: int) -> str:
        """Return the name of the `attempt`-th thing started in this generation, counted from 1."""
        return f"{self.base_name}-a{attempt}"

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags that say which run pays for a thing.

        A deployment without a name has no tag.
        """
        tags = {
            "airflow:dag_id": self.dag_id,
            "airflow:run_id": self.run_id,
            "airflow:task_id": self.task_id,
            "airflow:map_index": str(self.map_index),
            "airflow:generation": str(self.generation),
            NAME_TAG: self.base_name,
        }
        if self.deployment:
            tags[DEPLOYMENT_TAG] = self.deployment
        return {key: as_tag(value) for key, value in tags.items()}

    @classmethod
    def from_tags(cls, tags: Mapping[str, str], deployment: str) -> TaskIdentity | None:
        """Return whose these tags are, None if they are of another deployment or do not tell.

        The name tag is the proof: its hash holds what was written before AWS's characters replaced any.
        """
        try:
            found = cls(
                dag_id=tags["airflow:dag_id"],
                run_id=tags["airflow:run_id"],
                task_id=tags["airflow:task_id"],
                map_index=int(tags["airflow:map_index"]),
                generation=int(tags["airflow:generation"]),
                deployment=deployment,
            )
        except (KeyError, ValueError):
            return None
        return found if found.base_name == tags.get(NAME_TAG) else None


def as_tag(value: str) -> str:
    """Return `value` in the characters that AWS takes in a tag, cut at its 256."""
    return re.sub(r"[^\w\s.:/=+\-@]", "_", value)[:256]


def may_be_ours(name: str) -> bool:
    """Return whether `name` looks like an attempt's, so that asking AWS for its tags is worth a call."""
    return re.search(r"-[0-9a-f]{12}-g\d+-a\d+$", name) is not None


def generation(*, max_tries: int, retries: int) -> int:
    """Return which clear of a task this is, from 1.

    Airflow's clear sets `max_tries = try_number + retries` and a retry leaves it alone, so the difference
    stands still over retries and grows with each clear (airflow: `clear_task_instances`).
    """
    return max(1, max_tries - retries + 1)
