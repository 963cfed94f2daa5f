"""A training image as one task: built once per content, and pinned."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from airflow_smd.domain.image import (
    BuildSettings,
    BuildStatus,
    Follow,
    ImageBuild,
    ImagePlan,
    ImageRecipe,
    Start,
    build_spec,
    next_build,
)
from airflow_smd.domain.image_problems import recipe_problems, target_problems
from airflow_smd.errors import (
    ImageBuildFailed,
    ImageBuildFault,
    ImageBuildStopped,
    ImageBuildTimedOut,
    Problem,
    TaskTimedOut,
    UnexpectedAnswer,
    refuse,
)
from airflow_smd.operators.base import SmdOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.aws.image import BuildContexts, ImageBuilds, ImageRepository, PublishedImage

LOG_LINES = 50
"""How much of a failed build's log its error carries."""


class TrainingImageBuildOperator(SmdOperator):
    """Return a training image made from a recipe, and build it first if ECR lacks it.

    The tag is made from the content, so a second run with the same code and packages ends at once. A retry
    follows the build that an earlier try started. The build is stopped when the task is killed.

    Args:
        repository: name of the ECR repository; made if need be, with immutable tags.
        work_uri: `s3://bucket/prefix` that the build context is uploaded under.
        source_dir: directory with the training code, copied to /opt/ml/code; or the build context of
            `recipe["dockerfile"]`.
        base_image: URI of the image to extend, as a rule a Deep Learning Container.
        pip: Python requirements to add, pinned.
        recipe: more fields of :class:`ImageRecipe`: `apt`, `requirements`, `entry_point`, `dockerfile`,
            `build_args`.
        codebuild_role_arn: service role of the CodeBuild project, which is made if need be.
        build: fields of :class:`BuildSettings`: `project` (one of your own), `compute_type`, `image`,
            `timeout_minutes`, `queued_timeout_minutes`.

    Returns:
        `image_uri` (pinned by digest), `tag_uri`, `digest`, `built` (False on a hit) and `seconds` (what
        CodeBuild took).

    Raises:
        InvalidInput: recipe, context or target have problems; nothing was created.
        ImageBuildFailed: a subclass for each kind of failure, with the last lines of the log.
        TaskTimedOut: `execution_timeout` passed; the build was stopped.
    """

    template_fields: Sequence[str] = (
        "repository",
        "work_uri",
        "source_dir",
        "base_image",
        "pip",
        "recipe",
        "codebuild_role_arn",
        "build",
    )
    template_fields_renderers = {"recipe": "json", "build": "json"}  # noqa: RUF012  # Airflow's own form

    def __init__(
        self,
        *,
        repository: str,
        work_uri: str,
        source_dir: str = "",
        base_image: str = "",
        pip: Sequence[str] = (),
        recipe: Mapping[str, Any] | None = None,
        codebuild_role_arn: str = "",
        build: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.repository = repository
        self.work_uri = work_uri
        self.source_dir = source_dir
        self.base_image = base_image
        self.pip = pip
        self.recipe = recipe
        self.codebuild_role_arn = codebuild_role_arn
        self.build = build
        self._following = ""
        self._refuse_what_is_known()

    @cached_property
    def images(self) -> ImageRepository:
        """Return the repository of our connection's account."""
        from airflow_smd.hooks.image import ImageHook

        return ImageHook(self.connection).repository(self.repository)

    @cached_property
    def contexts(self) -> BuildContexts:
        """Return where build contexts are kept."""
        from airflow_smd.hooks.image import ImageHook

        return ImageHook(self.connection).contexts(self.work_uri)

    @cached_property
    def builds(self) -> ImageBuilds:
        """Return the builds of our project."""
        from airflow_smd.hooks.image import ImageHook

        return ImageHook(self.connection).builds(self._parse()[1].project_name)

    def execute(self, context: Context) -> Any:
        """Return the image that is there, or follow this task's build, or start one; then wait."""
        plan = self._plan()
        if found := self.images.find(plan.tag):
            self.log.info("%s is there already", found.pinned_uri)
            return _result(found, built=False, seconds=0.0)
        name = self.identity(context).base_name
        match next_build(name, plan.tag, self.builds.named(name)):
            case Follow(build_id=build_id):
                self.log.info("Following %s, which an earlier try started", build_id)
            case Start() as start:
                build_id = self._start(context, plan, start)
            case impossible:
                assert_never(impossible)
        return self._wait(context, build_id, plan.tag)

    def finish(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the image that the build pushed, or raise the error of its kind."""
        build_id, tag = event["build_id"], event["tag"]
        if event.get("timeout"):
            self.builds.stop(build_id)
            raise TaskTimedOut(f"execution_timeout={self.execution_timeout} passed; {build_id} was stopped")
        build = self.builds.look(build_id)
        image = self.images.find(tag)
        if image is not None:
            # also after a failure: another task may have pushed the same content in the meantime
            built = build is not None and build.status is BuildStatus.SUCCEEDED
            self.log.info("%s is there%s", image.pinned_uri, "" if built else ", pushed by another build")
            return _result(image, built=built, seconds=build.seconds if build else 0.0)
        if build is None:
            raise ImageBuildFault(build_id=build_id, phase="?", reason="CodeBuild does not know it any more.")
        raise self._failure(build)

    def on_kill(self) -> None:
        """Stop the build when the worker's task is killed."""
        if self._following:
            self.log.info("Stopping %s, since the task is killed", self._following)
            self.builds.stop(self._following)

    def _plan(self) -> ImagePlan:
        from airflow_smd.hooks.image import read_context

        recipe, settings, problems = self._parse()
        refuse(problems)
        plan = ImagePlan(recipe=recipe, files=read_context(Path(self.source_dir)) if self.source_dir else ())
        self.refuse(plan.problems() + target_problems(self.repository, self.work_uri, settings))
        return plan

    def _parse(self) -> tuple[ImageRecipe, BuildSettings, list[Problem]]:
        additions = {"base_image": self.base_image, "pip": self.pip}
        recipe, problems = ImageRecipe.parse(_over({k: v for k, v in additions.items() if v}, self.recipe))
        settings, more = BuildSettings.parse(_over({"role_arn": self.codebuild_role_arn}, self.build))
        return recipe, settings, problems + more

    def _refuse_what_is_known(self) -> None:
        """Refuse at DAG parse what no template can change."""
        recipe, settings, problems = self._parse()
        whole = {problem.field for problem in problems}
        problems += recipe_problems(recipe) if "recipe" not in whole else []
        if "build" not in whole:
            problems += target_problems(str(self.repository), str(self.work_uri), settings)
        refuse(problem for problem in problems if not re.search("{{|{%", str(problem.value)))

    def _start(self, context: Context, plan: ImagePlan, start: Start) -> str:
        identity, settings = self.identity(context), self._parse()[1]
        for stale in start.stop:
            self.log.info("Stopping %s, which builds what the recipe was before", stale)
            self.builds.stop(stale)
        target = f"{self.images.ensure(identity.tags)}:{plan.tag}"
        if not self.contexts.has(plan.tag):
            self.contexts.put(plan.tag, plan.pack())
        self.builds.ensure_project(settings, identity.tags)
        build_id = self.builds.start(
            name=identity.base_name,
            tag=plan.tag,
            token=start.token,
            location=self.contexts.location(plan.tag),
            build_spec=build_spec(plan, target, self.images.region),
            settings=settings,
            tags=identity.tags,
        )
        self.log.info("Started %s for %s", build_id, target)
        return build_id

    def _wait(self, context: Context, build_id: str, tag: str) -> Any:
        from airflow_smd.triggers.image import ImageBuildTrigger

        self._following = build_id
        return self.wait(context, ImageBuildTrigger(build_id=build_id, tag=tag, **self.waiting()), "finish")

    def _failure(self, build: ImageBuild) -> Exception:
        kinds: dict[BuildStatus, type[ImageBuildFailed]] = {
            BuildStatus.FAILED: ImageBuildFailed,
            BuildStatus.FAULT: ImageBuildFault,
            BuildStatus.TIMED_OUT: ImageBuildTimedOut,
            BuildStatus.STOPPED: ImageBuildStopped,
        }
        if build.status not in kinds:
            return UnexpectedAnswer(f"{build.build_id} is {build.status}, yet {build.tag} is not in ECR")
        return kinds[build.status](
            build_id=build.build_id,
            phase=build.phase,
            reason=build.reason,
            log_lines=self.builds.log_tail(build, LOG_LINES),
            link=build.link,
        )


def _over(given: Mapping[str, Any], more: Any) -> Any:
    """Return `given` with `more` laid over it; what is no mapping is left for the parser to refuse."""
    return {**given, **(more or {})} if isinstance(more or {}, Mapping) else more


def _result(image: PublishedImage, *, built: bool, seconds: float) -> dict[str, Any]:
    return {
        "image_uri": image.pinned_uri,
        "tag_uri": image.tag_uri,
        "digest": image.digest,
        "built": built,
        "seconds": seconds,
    }
