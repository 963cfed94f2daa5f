"""Waiting for an image build."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow_smd.aws.image import ImageBuilds
from airflow_smd.hooks.image import ImageHook
from airflow_smd.triggers.base import WaitTrigger


class ImageBuildTrigger(WaitTrigger):
    """Fires when a build is over; until then what it writes goes to the task log.

    Args:
        build_id: the build.
        tag: the tag of the image that it makes, handed on in the event.
        **wait: the arguments of :class:`WaitTrigger`.
    """

    def __init__(self, *, build_id: str, tag: str, **wait: Any) -> None:
        super().__init__(**wait)
        self.build_id = build_id
        self.tag = tag
        self._phase = ""
        self._token: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return what tells this trigger from another."""
        return {"build_id": self.build_id, "tag": self.tag}

    @cached_property
    def builds(self) -> ImageBuilds:
        """Return the builds of the project that the build's id names."""
        return ImageHook(self.aws).builds(self.build_id.partition(":")[0])

    def look(self) -> dict[str, Any] | None:
        """Return the build's id when it is over or gone, and log what is new."""
        build = self.builds.look(self.build_id)
        if build is None:
            return {"build_id": self.build_id, "tag": self.tag, "gone": True}
        lines, self._token = self.builds.log_lines(build, self._token)
        for line in lines:
            self.log.info("build | %s", line)
        if build.phase != self._phase:
            self.log.info("%s: %s", self.build_id, build.phase)
            self._phase = build.phase
        return None if build.running else {"build_id": self.build_id, "tag": self.tag}

    def stop(self) -> None:
        """Stop the build."""
        self.builds.stop(self.build_id)
