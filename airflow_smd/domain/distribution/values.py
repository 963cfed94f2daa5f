"""The strategies as values, each convertible to the SDK's `distribution` dictionary and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from airflow_smd.errors import InvalidInput, Problem


def _mapping(value: Any) -> dict[str, Any]:
    return {name: setting for name, setting in asdict(value).items() if setting is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowParameters:
    """`parameters` of SMP v1 for TensorFlow; what is None is left to the library."""

    partitions: int | None = None
    microbatches: int | None = None
    pipeline: str | None = None
    optimize: str | None = None
    placement_strategy: str | None = None
    auto_partition: bool | None = None
    default_partition: int | None = None
    contiguous: bool | None = None
    horovod: bool | None = None
    load_partition: bool | None = None
    partition_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchParameters:
    """`parameters` of SMP v1 for PyTorch; what is None is left to the library."""

    pipeline_parallel_degree: int | None = None
    partitions: int | None = None
    """The name of `pipeline_parallel_degree` before SMP 1.6 (PyTorch below 1.8.1)."""
    tensor_parallel_degree: int | None = None
    sharded_data_parallel_degree: int | None = None
    microbatches: int | None = None
    active_microbatches: int | None = None
    pipeline: str | None = None
    optimize: str | None = None
    placement_strategy: str | None = None
    auto_partition: bool | None = None
    default_partition: int | None = None
    load_partition: bool | None = None
    partition_file: str | None = None
    memory_weight: float | None = None
    ddp: bool | None = None
    ddp_port: int | None = None
    ddp_dist_backend: str | None = None
    deterministic_server: bool | None = None
    offload_activations: bool | None = None
    activation_loading_horizon: int | None = None
    fp16: bool | None = None
    bf16: bool | None = None
    fp16_params: bool | None = None
    shard_optimizer_state: bool | None = None
    prescaled_batch: bool | None = None
    skip_tracing: bool | None = None
    fast_mode: bool | None = None
    static_mode: bool | None = None
    delayed_parameter_initialization: bool | None = None
    sdp_reduce_bucket_size: float | None = None
    sdp_param_persistence_threshold: float | None = None
    sdp_max_live_parameters: float | None = None
    sdp_hierarchical_allgather: bool | None = None
    sdp_gradient_clipping: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SMPv2Parameters:
    """`parameters` of SMP v2; what is None is left to the library."""

    hybrid_shard_degree: int | None = None
    sm_activation_offloading: bool | None = None
    activation_loading_horizon: int | None = None
    fsdp_cache_flush_warnings: bool | None = None
    allow_empty_shards: bool | None = None
    tensor_parallel_degree: int | None = None
    context_parallel_degree: int | None = None
    expert_parallel_degree: int | None = None
    random_seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MPI:
    """`mpirun` over all hosts: Horovod, mpi4py, DeepSpeed."""

    processes_per_host: int | None = None
    custom_mpi_options: str = ""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        mpi: dict[str, Any] = {"enabled": True}
        if self.processes_per_host is not None:
            mpi["processes_per_host"] = self.processes_per_host
        if self.custom_mpi_options:
            mpi["custom_mpi_options"] = self.custom_mpi_options
        return {"mpi": mpi}


@dataclass(frozen=True, slots=True, kw_only=True)
class SMDDP:
    """SageMaker's data parallelism library, under `mpirun`, or under torchrun for AllGather only."""

    custom_mpi_options: str = ""
    torchrun: bool = False

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        library: dict[str, Any] = {"enabled": True}
        if self.custom_mpi_options:
            library["custom_mpi_options"] = self.custom_mpi_options
        launcher = Torchrun().distribution() if self.torchrun else {}
        return {"smdistributed": {"dataparallel": library}, **launcher}


@dataclass(frozen=True, slots=True, kw_only=True)
class SMPv1:
    """SageMaker's model parallelism library v1, always under MPI."""

    parameters: PyTorchParameters | TensorFlowParameters
    mpi: MPI = field(default_factory=MPI)

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        library = {"enabled": True, "parameters": _mapping(self.parameters)}
        return {"smdistributed": {"modelparallel": library}, **self.mpi.distribution()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SMPv2:
    """SageMaker's model parallelism library v2, always under torchrun."""

    parameters: SMPv2Parameters = field(default_factory=SMPv2Parameters)

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        library = {"enabled": True, "parameters": _mapping(self.parameters)}
        return {"smdistributed": {"modelparallel": library}, **Torchrun().distribution()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun:
    """`torchrun`, one process for each GPU: DDP, FSDP, and any type with GPUs."""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return {"torch_distributed": {"enabled": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainium:
    """`torchrun`, one process for each Neuron core."""

    precompile: bool = False
    """Compile the graphs and stop (`neuron_parallel_compile`), before the run that trains."""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return Torchrun().distribution()

    def environment(self) -> dict[str, str]:
        """Return the variables that the container's launcher reads."""
        return {"RUN_NEURON_PARALLEL_COMPILE": "1"} if self.precompile else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchDDP:
    """The SDK's `pytorchddp`: SMDDP for PyTorch, mpirun with DDP for HuggingFace."""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return {"pytorchddp": {"enabled": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchXLA:
    """PyTorch/XLA workers, with SageMaker Training Compiler only."""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return {"pytorchxla": {"enabled": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer:
    """TensorFlow's parameter servers."""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return {"parameter_server": {"enabled": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiWorkerMirrored:
    """TensorFlow's MultiWorkerMirroredStrategy."""

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return {"multi_worker_mirrored_strategy": {"enabled": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heterogeneous:
    """A strategy on one named instance group; the other groups run the script as a plain process."""

    group: str
    strategy: Homogeneous

    def distribution(self) -> dict[str, Any]:
        """Return the SDK's dictionary."""
        return {**self.strategy.distribution(), "instance_groups": [self.group]}


Homogeneous = (
    SMDDP
    | SMPv1
    | SMPv2
    | Torchrun
    | Trainium
    | MPI
    | PyTorchDDP
    | PyTorchXLA
    | ParameterServer
    | MultiWorkerMirrored
)
Strategy = Homogeneous | Heterogeneous


def read_strategy(distribution: Mapping[str, Any]) -> Strategy:
    """Return the one strategy that an SDK dictionary means.

    Raises InvalidInput for a dictionary that no single strategy gives, so that nothing of it is lost.
    """
    rest = dict(distribution)
    match rest.pop("instance_groups", None):
        case [str(group)]:
            inner = read_strategy(rest)
            if not isinstance(inner, Heterogeneous):
                return Heterogeneous(group=group, strategy=inner)
        case None:
            for candidate in _candidates(rest):
                if candidate.distribution() == rest:
                    return candidate
    raise InvalidInput(
        [
            Problem(
                rule="not-one-strategy",
                field="distribution",
                value=dict(distribution),
                message="No single strategy is written like this.",
                remedy="Lint the dictionary to see which keys are in the way.",
            )
        ]
    )


def _candidates(rest: Mapping[str, Any]) -> list[Homogeneous]:
    found: list[Homogeneous] = [
        Torchrun(),
        PyTorchDDP(),
        PyTorchXLA(),
        ParameterServer(),
        MultiWorkerMirrored(),
        SMDDP(torchrun=True),
    ]
    match rest:
        case {"smdistributed": {"dataparallel": {"custom_mpi_options": str(options)}}}:
            found += [SMDDP(custom_mpi_options=options, torchrun=torchrun) for torchrun in (False, True)]
        case {"smdistributed": {"modelparallel": {"parameters": dict(given)}}, "mpi": dict(mpi)}:
            kinds = (PyTorchParameters, TensorFlowParameters)
            found += [
                SMPv1(parameters=kind(**given), mpi=launcher)
                for kind in kinds
                if given.keys() <= {f.name for f in fields(kind)}
                for launcher in _launchers(mpi)
            ]
        case {"smdistributed": {"modelparallel": {"parameters": dict(given)}}}:
            if given.keys() <= {f.name for f in fields(SMPv2Parameters)}:
                found.append(SMPv2(parameters=SMPv2Parameters(**given)))
        case {"mpi": dict(mpi)}:
            found += _launchers(mpi)
        case _:
            found.append(SMDDP())
    return found


def _launchers(mpi: Mapping[str, Any]) -> list[MPI]:
    known = {f.name for f in fields(MPI)}
    return [MPI(**{name: value for name, value in mpi.items() if name in known})]
