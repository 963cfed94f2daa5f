"""Each strategy as a value: the SDK's dictionary and back, and what the toolkit then starts."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.domain.distribution import (
    MPI,
    SMDDP,
    Heterogeneous,
    Job,
    MultiWorkerMirrored,
    ParameterServer,
    PyTorchDDP,
    PyTorchParameters,
    PyTorchXLA,
    SMPv1,
    SMPv2,
    SMPv2Parameters,
    TensorFlowParameters,
    Torchrun,
    Trainium,
    launch_hyperparameters,
    lint,
    read_strategy,
)
from airflow_smd.domain.distribution.facts import parameters
from airflow_smd.errors import InvalidInput

STRATEGIES = [
    SMDDP(),
    SMDDP(custom_mpi_options="-verbose -x NCCL_DEBUG=VERSION"),
    SMDDP(torchrun=True),
    SMPv1(parameters=PyTorchParameters(pipeline_parallel_degree=2, ddp=True), mpi=MPI(processes_per_host=8)),
    SMPv1(parameters=TensorFlowParameters(partitions=2, horovod=True), mpi=MPI(processes_per_host=8)),
    SMPv2(parameters=SMPv2Parameters(hybrid_shard_degree=16, sm_activation_offloading=True)),
    SMPv2(),
    Torchrun(),
    MPI(processes_per_host=8, custom_mpi_options="-x A=1"),
    MPI(),
    PyTorchDDP(),
    PyTorchXLA(),
    ParameterServer(),
    MultiWorkerMirrored(),
    Heterogeneous(group="gpu", strategy=SMDDP()),
    Heterogeneous(group="gpu", strategy=MPI(processes_per_host=8)),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_there_and_back(strategy):
    assert read_strategy(strategy.distribution()) == strategy


def test_trainium_is_torchrun_with_an_optional_compilation():
    assert Trainium().distribution() == Torchrun().distribution()
    assert Trainium(precompile=True).environment() == {"RUN_NEURON_PARALLEL_COMPILE": "1"}


@given(
    st.builds(
        PyTorchParameters,
        pipeline_parallel_degree=st.integers(1, 8),
        microbatches=st.none() | st.integers(1, 8),
        ddp=st.none() | st.booleans(),
    ),
    st.builds(MPI, processes_per_host=st.none() | st.integers(1, 8), custom_mpi_options=st.text(max_size=5)),
)
def test_no_parameter_is_lost_on_the_way(given_parameters, mpi):
    strategy = SMPv1(parameters=given_parameters, mpi=mpi)

    assert read_strategy(strategy.distribution()) == strategy


@pytest.mark.parametrize(
    "distribution",
    [
        pytest.param({"mpi": {"enabled": True, "process_per_host": 8}}, id="a typo"),
        pytest.param({"mpi": {"enabled": True}, "torch_distributed": {"enabled": True}}, id="two at once"),
        pytest.param({"torch_distributed": {"enabled": False}}, id="switched off"),
        pytest.param({}, id="nothing"),
        pytest.param({"instance_groups": ["a", "b"], "mpi": {"enabled": True}}, id="two groups"),
    ],
)
def test_a_dictionary_that_is_no_single_strategy_is_refused(distribution):
    with pytest.raises(InvalidInput):
        read_strategy(distribution)


@pytest.mark.parametrize(
    ("kind", "library", "framework"),
    [
        pytest.param(PyTorchParameters, "smp1", "pytorch", id="SMP v1 for PyTorch"),
        pytest.param(TensorFlowParameters, "smp1", "tensorflow", id="SMP v1 for TensorFlow"),
        pytest.param(SMPv2Parameters, "smp2", "pytorch", id="SMP v2"),
    ],
)
def test_the_typed_parameters_are_the_tables(kind, library, framework):
    table = {name for name, fact in parameters(library).items() if framework in fact.frameworks}

    assert {field.name for field in fields(kind)} == table


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param(
            SMDDP(custom_mpi_options="-verbose"),
            {
                "sagemaker_distributed_dataparallel_enabled": True,
                "sagemaker_distributed_dataparallel_custom_mpi_options": "-verbose",
                "sagemaker_instance_type": "ml.p4d.24xlarge",
            },
            id="SMDDP",
        ),
        pytest.param(
            MPI(processes_per_host=8),
            {
                "sagemaker_mpi_enabled": True,
                "sagemaker_mpi_num_of_processes_per_host": 8,
                "sagemaker_mpi_custom_mpi_options": "",
            },
            id="MPI",
        ),
        pytest.param(
            Torchrun(),
            {"sagemaker_torch_distributed_enabled": True, "sagemaker_instance_type": "ml.p4d.24xlarge"},
            id="torchrun",
        ),
        pytest.param(ParameterServer(), {"sagemaker_parameter_server_enabled": True}, id="parameter server"),
    ],
)
def test_a_job_takes_a_value_in_place_of_the_dictionary(strategy, expected):
    job = Job.parse(
        {"estimator": "PyTorch", "kwargs": {"instance_type": "ml.p4d.24xlarge", "distribution": strategy}}
    )

    assert launch_hyperparameters(job) == expected


def test_a_value_is_linted_like_its_dictionary():
    data = {"kwargs": {"instance_type": "ml.g5.48xlarge", "instance_count": 2, "distribution": SMDDP()}}

    assert "smddp-instance" in {problem.rule for problem in lint(Job.parse(data), installed_catalogue())}
