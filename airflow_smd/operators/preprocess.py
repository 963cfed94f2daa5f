"""Preprocessing ahead of training as one task: shards for every rank, made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_smd.domain.dataset import Manifest, disagreement, merged
from airflow_smd.domain.preprocess import (
    JOB_NAME,
    Plan,
    image_problems,
    plan,
    plan_problems,
    request,
    result,
)
from airflow_smd.domain.preprocess_arguments import code_problems, refuse_fixed, wish_of
from airflow_smd.domain.processing import ProcessingRun, failure, next_step, outcome
from airflow_smd.domain.training import Follow, Launch, Outcome, WaitOut
from airflow_smd.domain.units import format_bytes
from airflow_smd.errors import (
    PreprocessFailed,
    SourceChanged,
    refuse,
)
from airflow_smd.operators.jobs import SageMakerJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_smd.aws.dataset import Datasets
    from airflow_smd.aws.processing import ProcessingJobs
    from airflow_smd.domain.identity import TaskIdentity


class SageMakerPreprocessOperator(SageMakerJobOperator):
    """Make WebDataset shards of raw data with a SageMaker Processing job, unless they are there already.

    The number of shards is a multiple of every world size, so that each rank reads whole shards and none
    waits for another at the end of an epoch. The result lies under a name made of the data, the transform and
    the sharding: unchanged data are found done, also after the task is cleared. Each instance takes whole
    objects; `manifest.json`, written last, says that everything is there.

    Args:
        source_uri: folder of raw data, `s3://bucket/prefix/`.
        output_uri: folder for data sets; each gets a folder of its own in it.
        transform: `{"kind": "tabular" | "copy" | "images" | "function", ...}` with the options of
            `airflow_smd.container.transforms`, and `on_bad` (`fail`, or `skip` up to `max_bad` per instance).
        world_sizes: numbers of ranks that shall read evenly, such as `[8, 16]`.
        role: ARN of the role that the job assumes.
        instance_type: such as `ml.m5.xlarge`.
        instance_count: instances; at most as many as there are objects.
        image_uri: any image with Python 3.9 or newer; default: AWS's scikit-learn image of the Region.
        code_dir: directory with the module of `kind=function`.
        sharding: `validation_fraction` (0.1), `seed` (0), `shard_bytes` (`128MiB`).
        job: `volume_gb` (from the data), `max_run_seconds` (86400), `subnets`, `security_group_ids`,
            `kms_key_id`, `environment`.

    Returns:
        `uri`, `manifest_uri`, `bytes`, `samples`, `shards`, `files`, `fingerprint`, `reused`, `splits`,
        `seconds`, `instance_type`, `instance_count` of the shards, as JSON.

    Raises:
        InvalidInput: the arguments do not fit, all problems listed; nothing was created.
        DatasetUnreadable: the raw data are not there or may not be read; nothing was created.
        PreprocessFailed: the job failed; a subclass says whether another try makes sense.
        SourceChanged: the raw data changed while they were read.
    """

    template_fields: Sequence[str] = (
        "source_uri",
        "output_uri",
        "transform",
        "world_sizes",
        "role",
        "instance_type",
        "instance_count",
        "image_uri",
        "code_dir",
        "sharding",
        "job",
    )
    template_fields_renderers = {"transform": "json", "sharding": "json", "job": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        source_uri: str,
        output_uri: str,
        transform: Mapping[str, Any],
        world_sizes: Sequence[int] | int | str,
        role: str,
        instance_type: str = "ml.m5.xlarge",
        instance_count: int | str = 1,
        image_uri: str | None = None,
        code_dir: str | None = None,
        sharding: Mapping[str, Any] | None = None,
        job: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_uri = source_uri
        self.output_uri = output_uri
        self.transform = transform
        self.world_sizes = world_sizes
        self.role = role
        self.instance_type = instance_type
        self.instance_count = instance_count
        self.image_uri = image_uri
        self.code_dir = code_dir
        self.sharding = sharding
        self.job = job
        refuse_fixed(self._raw())

    @cached_property
    def jobs(self) -> ProcessingJobs:
        """Return the processing jobs of our connection."""
        from airflow_smd.hooks.processing import ProcessingHook

        return ProcessingHook(self.connection).jobs

    @cached_property
    def datasets(self) -> Datasets:
        """Return the data sets of our connection."""
        from airflow_smd.hooks.processing import ProcessingHook

        return ProcessingHook(self.connection).datasets

    def execute(self, context: Context) -> Any:
        """Return sealed shards at once; else follow this task's job, or check and launch it, and wait."""
        from airflow_smd.aws.preprocess_code import code_files, user_code_digest

        wish = wish_of(self._raw())
        code_dir = Path(self.code_dir) if self.code_dir else None
        refuse(code_problems(self.code_dir, is_directory=code_dir is None or code_dir.is_dir()))
        code = code_files(code_dir)
        source = self.datasets.source(wish.source)
        wanted = plan(wish, source, user_code_digest(code))
        sealed = self.datasets.manifest(wanted.folder)
        if sealed is not None:
            self.log.info("%s holds the shards of these data already", wanted.folder.uri)
            return self._result(wanted, sealed, reused=True, seconds=0.0)
        problems = [*plan_problems(wish, source), *image_problems(wish, self.jobs.region)]
        if wish.machines.instance_type not in self.jobs.instance_types:
            self.log.warning(
                "instance_type=%r is unknown to the installed botocore; SageMaker decides",
                wish.machines.instance_type,
            )
        self.refuse(problems)
        return self._start(context, wanted, code)

    def finish(self, _context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Seal what the job made and return it, or raise the error of its kind."""
        job_name = event["job_name"]
        self.stop_after_timeout(event)
        run = self.jobs.look(job_name)
        if run is None:
            raise PreprocessFailed(job_name, "The job was deleted while the task waited for it.", "")
        if outcome(run.status) is not Outcome.SUCCEEDED:
            raise failure(run)
        made = Plan(
            wish=wish_of(self._raw()), source=event["source"], classes=None, fingerprint=event["fingerprint"]
        )
        return self._result(made, self._seal(run, made), reused=False, seconds=run.seconds)

    def _start(self, context: Context, wanted: Plan, code: Mapping[str, bytes]) -> Any:
        identity = self.identity(context)
        carry = {"source": wanted.source, "fingerprint": wanted.fingerprint}
        match next_step(identity, self.jobs.attempts(identity), wanted.folder.uri):
            case WaitOut(job_name):
                self.log.info("%s makes shards of data that have changed since; stopping it", job_name)
                self.jobs.stop(job_name)
                return self._wait(context, job_name, "execute_again", carry)
            case Follow(job_name):
                self.log.info("Following %s, which is already there", job_name)
            case Launch(job_name):
                self._launch(identity, job_name, wanted, code)
        return self._wait(context, job_name, "finish", carry)

    def _launch(self, identity: TaskIdentity, job_name: str, wanted: Plan, code: Mapping[str, bytes]) -> None:
        from airflow_smd.aws.preprocess_code import digest

        files = {**code, JOB_NAME: wanted.job_file().encode()}
        folder = wanted.wish.output / "_code" / digest(files)
        self.datasets.upload(folder, files)
        wish = request(
            wanted, job_name=job_name, code_uri=folder.uri, region=self.jobs.region, tags=identity.tags
        )
        self.log.info(
            "%s files, %s, become shards in %s",
            wanted.source["files"],
            format_bytes(wanted.source["bytes"]),
            wanted.folder.uri,
        )
        self.launch(identity, job_name, wish)

    def _wait(self, context: Context, job_name: str, method_name: str, carry: Mapping[str, Any]) -> Any:
        from airflow_smd.triggers.processing import ProcessingTrigger

        self.following = job_name
        trigger = ProcessingTrigger(job_name=job_name, carry=carry, **self.waiting())
        return self.wait(context, trigger, method_name)

    def _seal(self, run: ProcessingRun, made: Plan) -> Manifest:
        """Check that the hosts read all of the planned data and left every shard, and write the manifest."""
        from airflow_smd import __version__

        source = self.datasets.source(made.wish.source)
        if source.fingerprint != made.source["fingerprint"]:
            was, now = made.source["files"], len(source.objects)
            raise SourceChanged(source.uri, f"it had {was} objects and has {now}, or their content differs")
        parts = self.datasets.parts(made.folder, run.instance_count)
        wrong = disagreement(parts, hosts=run.instance_count, source=made.source)
        if wrong:
            raise PreprocessFailed(run.job_name, f"{wrong}, in {made.folder.uri}.", "")
        manifest = merged(
            parts,
            uri=made.folder.uri,
            fingerprint=made.fingerprint,
            source=made.source,
            transform=made.wish.transform,
            world_sizes=made.wish.sharding.world_sizes,
            created_by=f"airflow-smd {__version__}",
        )
        there = self.datasets.sizes(made.folder)
        shards = [shard for split in manifest.splits.values() for shard in split]
        lost = [shard.name for shard in shards if there.get(shard.name) != shard.size_bytes]
        if lost:
            raise PreprocessFailed(run.job_name, f"{len(lost)} shards did not arrive: {lost[:5]}.", "")
        return self.datasets.seal(made.folder, manifest)

    def _result(
        self, made: Plan, manifest: Manifest, *, reused: bool, seconds: float | None
    ) -> dict[str, Any]:
        splits = {name: manifest.totals(name) for name in manifest.splits}
        told = result(made, splits, reused=reused, seconds=seconds)
        self.log.info(
            "%s samples in %s shards, %s, at %s",
            told["samples"],
            told["shards"],
            format_bytes(told["bytes"]),
            told["uri"],
        )
        if manifest.skipped:
            self.log.warning("Skipped samples: %s; see %sparts/", dict(manifest.skipped), told["uri"])
        return told

    def _raw(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.template_fields}
