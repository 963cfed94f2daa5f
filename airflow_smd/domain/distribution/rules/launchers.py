"""Which launcher starts the script, and combinations in which another one wins."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_smd.domain.distribution.facts import parameters, version_key
from airflow_smd.domain.distribution.images import Catalogue
from airflow_smd.domain.distribution.job import Form, Job
from airflow_smd.domain.distribution.rules.base import E, Finding, N, W, finding, rule

TOOLKIT = "sagemaker-training 5.1.4 takes the first of mpi, torch_distributed, dataparallel"
SDK = "sagemaker 2.257.7"


@rule("generic-estimator", E, f"{SDK}: Estimator swallows the keyword")
def generic_estimator(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`distribution` on the generic Estimator, which ignores it."""
    if job.estimator == "Estimator" and job.form is Form.ESTIMATOR and "distribution" in job.arguments:
        yield finding(
            "distribution",
            sorted(job.distribution),
            "The generic Estimator ignores it: one plain process would run on each host.",
            "Use PyTorch(image_uri=...) or TensorFlow(image_uri=...) with the same image.",
        )


@rule("smp1-needs-mpi", E, "SageMaker developer guide: mpi.enabled is required")
def smp1_needs_mpi(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v1 without MPI, which runs one plain process for each host."""
    if job.smp1 and not job.enabled("mpi"):
        yield finding(
            "distribution.mpi",
            job.section("mpi") and dict(job.section("mpi") or {}),
            "SMP v1 is started by MPI; without it each host runs one plain process and ends as Completed.",
            f'Add "mpi": {{"enabled": True, "processes_per_host": {_gpus(job)}}}.',
        )


@rule("smp1-with-torchrun", E, TOOLKIT)
def smp1_with_torchrun(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Parameters of SMP v1 in a job that torchrun starts, which means SMP v2."""
    shared = {*parameters("smp2"), "placement_strategy"}  # recipes send the latter to SMP v2
    old = [key for key in job.smp_parameters if key in parameters("smp1") and key not in shared]
    if job.smp2 and old:
        yield finding(
            "distribution.torch_distributed",
            old,
            "torchrun means SMP v2, and these are parameters of SMP v1, which MPI starts.",
            'Replace torch_distributed by "mpi", or the parameters by those of SMP v2.',
        )


@rule("smp2-with-mpi", E, TOOLKIT)
def smp2_with_mpi(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v2 with `mpi`, which makes mpirun start it instead of torchrun."""
    if job.smp2 and job.enabled("mpi"):
        yield finding("distribution.mpi", True, "mpirun would win over torchrun.", "Remove mpi.")


@rule("smddp-with-mpi", E, TOOLKIT)
def smddp_with_mpi(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMDDP with `mpi`, which makes plain mpirun start it."""
    if job.smddp and job.enabled("mpi") and job.section("modelparallel") is None:
        yield finding(
            "distribution.mpi",
            True,
            "SMDDP brings its own mpirun; beside it, plain mpirun wins and SMDDP is not set up.",
            "Remove mpi; its options go into smdistributed.dataparallel.custom_mpi_options.",
        )


@rule("conflicting-launchers", E, f"{TOOLKIT}; {SDK} drops the other keys beside torch_distributed")
def conflicting_launchers(job: Job, _: Catalogue) -> Iterator[Finding]:
    """Two strategies that start the script in different ways."""
    on = set(job.on) & {"mpi", "torch_distributed", "pytorchddp", "pytorchxla", "parameter_server"}
    if job.section("modelparallel") is not None or job.enabled("dataparallel"):
        on -= {"mpi", "torch_distributed"}  # the SMP and SMDDP rules say which of them belongs
    if job.enabled("multi_worker_mirrored_strategy"):
        on = (on - {"parameter_server"}) | {"multi_worker_mirrored_strategy"}  # mirrored-strategy says that
    if len(on) > 1:
        yield finding(
            "distribution",
            sorted(job.on),
            "Only one of them starts the script; the others are ignored.",
            "Keep one.",
        )


@rule("pytorchddp", E, SDK)
def pytorchddp(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`pytorchddp` beside `smdistributed`, or on an estimator that ignores it."""
    if "pytorchddp" not in job.distribution:
        return
    if job.estimator == "PyTorch" and "smdistributed" in job.distribution:
        yield finding(
            "distribution.pytorchddp", True, "It is another name of SMDDP here.", "Keep smdistributed only."
        )
    elif job.estimator == "TensorFlow" and job.enabled("pytorchddp"):
        yield finding("distribution.pytorchddp", True, "TensorFlow ignores it.", "Remove it.")


@rule("mirrored-strategy", E, SDK)
def mirrored_strategy(job: Job, _: Catalogue) -> Iterator[Finding]:
    """MultiWorkerMirroredStrategy outside TensorFlow 2.9 and newer, or with another strategy."""
    if not job.enabled("multi_worker_mirrored_strategy"):
        return
    field = "distribution.multi_worker_mirrored_strategy"
    version = job.framework_version
    if job.framework == "pytorch" or job.estimator == "HuggingFace":
        yield finding(field, True, "It is a strategy of TensorFlow.", "Use torch_distributed.")
    elif version and version_key(version) < (2, 9):
        yield finding(field, version, "It needs TensorFlow 2.9 or newer.", "Use framework_version 2.11.0.")
    others = [key for key in ("smdistributed", "parameter_server") if key in job.distribution]
    if others:
        yield finding(field, others, "It does not run together with these.", f"Remove {', '.join(others)}.")


@rule("parameter-server", E, "sagemaker-pytorch-training 3.0.0 has no launcher for it")
def parameter_server(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A parameter server outside TensorFlow, where each host trains alone."""
    if not job.enabled("parameter_server"):
        return
    field = "distribution.parameter_server"
    if job.framework == "pytorch":
        yield finding(
            field,
            True,
            "PyTorch's container ignores it: each host trains by itself.",
            'Use "torch_distributed": {"enabled": True} on GPUs, or "mpi" on CPUs.',
        )
    elif job.instance and job.instance.gpus > 1:
        yield finding(
            field,
            True,
            "Parameter servers use one GPU of each host well.",
            "Use multi_worker_mirrored_strategy or Horovod through mpi.",
            N,
        )


@rule("torchrun-framework", E, f"{SDK}: the TensorFlow class has no torch_distributed")
def torchrun_framework(job: Job, _: Catalogue) -> Iterator[Finding]:
    """`torch_distributed` on an estimator that ignores it."""
    if job.torchrun and (job.estimator == "TensorFlow" or job.framework == "tensorflow"):
        yield finding(
            "distribution.torch_distributed",
            True,
            "TensorFlow ignores it: each host runs one plain process.",
            "Use multi_worker_mirrored_strategy.",
        )


@rule("own-entry-point", W, "the launchers are in the image's `train`, which ContainerEntrypoint replaces")
def own_entry_point(job: Job, _: Catalogue) -> Iterator[Finding]:
    """A strategy in a container whose entry point is one's own, so that nothing reads the strategy."""
    if job.get("container_entry_point") and job.on and not job.smp2:
        yield finding(
            "container_entry_point",
            job.get("container_entry_point"),
            "The image's own `train` reads the strategy; this replaces it.",
            "Leave it out, or start the processes in it.",
        )


@rule("hugging-face-smp2", W, f"{SDK} loses mp_parameters here; this compiler keeps them")
def hugging_face_smp2(job: Job, _: Catalogue) -> Iterator[Finding]:
    """SMP v2 through the HuggingFace estimator."""
    if job.estimator == "HuggingFace" and job.smp2:
        yield finding(
            "distribution.smdistributed.modelparallel",
            sorted(job.smp_parameters),
            "AWS's own HuggingFace class drops these parameters beside torch_distributed.",
            "Use the PyTorch estimator, whose SMP v2 images have transformers in them.",
        )


def _gpus(job: Job) -> int:
    return job.instance.gpus if job.instance and job.instance.gpus else 8
