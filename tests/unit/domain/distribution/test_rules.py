"""Every rule with a job that breaks it, and jobs that break none."""

import copy

import pytest

from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.domain.distribution import RULES, Job, lint
from airflow_smd.domain.distribution.rules import ALWAYS
from airflow_smd.errors import Severity

ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
DLC = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
OWN = "123456789012.dkr.ecr.us-west-2.amazonaws.com/name:tag"
TORCHRUN = {"torch_distributed": {"enabled": True}}
MPI = {"mpi": {"enabled": True, "processes_per_host": 8}}
SMDDP = {"smdistributed": {"dataparallel": {"enabled": True}}}
SEED = {
    "pipeline_parallel_degree": 2,
    "microbatches": 4,
    "placement_strategy": "spread",
    "pipeline": "interleaved",
    "optimize": "speed",
    "ddp": True,
}
GROUPS = [
    {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "instance_count": 2},
    {"instance_group_name": "cpu", "instance_type": "ml.c5.18xlarge", "instance_count": 1},
]
FILE_SYSTEM = {"file_system_id": "fs-1", "file_system_type": "FSxLustre", "directory_path": "/fsx"}
DROP = object()


def smp(parameters, **more):
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}, **more}


def smddp(**more):
    return {"smdistributed": {"dataparallel": {"enabled": True, **more}}}


def pytorch(
    distribution=DROP, *, estimator="PyTorch", fit=None, region="us-west-2", workload=None, **changes
):
    """A right PyTorch job on two p4d hosts, with changes."""
    kwargs = {
        "role": ROLE,
        "entry_point": "train.py",
        "framework_version": "1.13.1",
        "py_version": "py39",
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": 2,
        "distribution": distribution,
        **changes,
    }
    kwargs = {key: copy.deepcopy(value) for key, value in kwargs.items() if value is not DROP}
    return {"estimator": estimator, "region": region, "kwargs": kwargs, "fit": fit, "workload": workload}


def torch2(distribution=TORCHRUN, **changes):
    """A right PyTorch 2.2 job."""
    return pytorch(distribution, **{"framework_version": "2.2.0", "py_version": "py310", **changes})


def tensorflow(distribution, **changes):
    """A right TensorFlow 2.11 job."""
    return pytorch(
        distribution,
        estimator="TensorFlow",
        **{"framework_version": "2.11.0", "py_version": "py39", "instance_type": "ml.g5.12xlarge", **changes},
    )


def seed(parameters=None, mpi=MPI, **changes):
    """The seed page's PyTorch job with the right Python version."""
    given = {**SEED, **(parameters or {})}
    given = {key: value for key, value in given.items() if value is not DROP}
    return pytorch(smp(given, **mpi), **{"instance_type": "ml.p3.16xlarge", "instance_count": 1, **changes})


def mpi(options, **changes):
    """A job under MPI with options of its own."""
    return torch2(
        {"mpi": {"enabled": True, "processes_per_host": 8, "custom_mpi_options": options}}, **changes
    )


def request(**changes):
    """A CreateTrainingJob request, as boto3 takes it."""
    return {
        "AlgorithmSpecification": {"TrainingImage": OWN, "TrainingInputMode": "File"},
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": "s3://b/"},
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        **changes,
    }


CASES = [
    # --- keys
    ("unknown-distribution-key", "a misspelt strategy", torch2({"torchdistributed": {"enabled": True}})),
    ("unknown-strategy-key", "AWS's own typo", torch2({"mpi": {"enabled": True, "process_per_host": 8}})),
    ("smdistributed-level", "empty", pytorch({"smdistributed": {}})),
    (
        "smdistributed-level",
        "the level left out",
        pytorch({"smdistributed": {"enabled": True, "parameters": SEED}}),
    ),
    (
        "smdistributed-level",
        "an unknown library",
        pytorch({"smdistributed": {"datparallel": {"enabled": True}}}),
    ),
    (
        "model-and-data-parallel",
        "both libraries",
        pytorch({"smdistributed": {**smp(SEED)["smdistributed"], **SMDDP["smdistributed"]}, **MPI}),
    ),
    (
        "enabled-not-boolean",
        "text drops mp_parameters",
        pytorch({"smdistributed": {"modelparallel": {"enabled": "True", "parameters": SEED}}, **MPI}),
    ),
    ("enabled-not-boolean", "the text False means yes", torch2({"mpi": {"enabled": "False"}})),
    ("enabled-missing", "no switch", torch2({"mpi": {"processes_per_host": 8}})),
    ("nothing-enabled", "all off", torch2({"mpi": {"enabled": False}})),
    ("no-strategy", "two hosts alone", torch2(DROP)),
    (
        "reserved-hyperparameter",
        "SMDDP becomes MPI",
        pytorch(SMDDP, hyperparameters={"sagemaker_mpi_enabled": True}),
    ),
    (
        "reserved-hyperparameter",
        "mp_parameters by hand",
        torch2(TORCHRUN, hyperparameters={"mp_parameters": {}}),
    ),
    # --- arguments
    ("required-argument", "no role", torch2(role=DROP)),
    ("instance-count", "no host", torch2(instance_count=0)),
    ("region-missing", "no region", torch2(region=None)),
    ("role-arn", "a name", torch2(role="SageMakerRole")),
    ("entry-point", "shell under torchrun", torch2(entry_point="train.sh")),
    ("entry-point", "on S3", torch2(entry_point="s3://b/train.py")),
    (
        "hugging-face-versions",
        "both frameworks",
        pytorch(
            SMDDP,
            estimator="HuggingFace",
            framework_version=DROP,
            transformers_version="4.26.0",
            pytorch_version="1.13.1",
            tensorflow_version="2.6.3",
        ),
    ),
    (
        "hugging-face-versions",
        "short and full",
        pytorch(
            SMDDP,
            estimator="HuggingFace",
            framework_version=DROP,
            transformers_version="4.26",
            pytorch_version="1.13.1",
        ),
    ),
    ("without-effect", "dependencies", torch2(dependencies=["lib"])),
    (
        "training-recipe",
        "on CPUs",
        pytorch(DROP, training_recipe="llama.yaml", instance_type="ml.c5.2xlarge"),
    ),
    # --- launchers
    (
        "generic-estimator",
        "the seed's extended container",
        pytorch(
            smp(SEED, **MPI), estimator="Estimator", image_uri=OWN, framework_version=DROP, py_version=DROP
        ),
    ),
    ("smp1-needs-mpi", "no mpi", seed(mpi={})),
    ("smp1-needs-mpi", "mpi off", seed(mpi={"mpi": {"enabled": False}})),
    ("smp1-with-torchrun", "old parameters", torch2(smp(SEED, **TORCHRUN))),
    ("smp2-with-mpi", "mpi wins", torch2(smp({"hybrid_shard_degree": 16}, **TORCHRUN, **MPI))),
    ("smddp-with-mpi", "mpi wins", pytorch({**SMDDP, **MPI})),
    ("conflicting-launchers", "torchrun and mpi", torch2({**TORCHRUN, **MPI})),
    (
        "conflicting-launchers",
        "mpi and mirrored",
        tensorflow({"mpi": {"enabled": True}, "multi_worker_mirrored_strategy": {"enabled": True}}),
    ),
    ("pytorchddp", "with smdistributed", pytorch({"pytorchddp": {"enabled": True}, **SMDDP})),
    ("xla-needs-compiler", "no compiler", pytorch({"pytorchxla": {"enabled": True}})),
    (
        "xla-needs-compiler",
        "TensorFlow",
        tensorflow({"pytorchxla": {"enabled": True}}, compiler_config=True, instance_type="ml.p3.16xlarge"),
    ),
    ("compiler-cluster", "with smdistributed", pytorch(SMDDP, compiler_config=True)),
    (
        "mirrored-strategy",
        "before 2.9",
        tensorflow({"multi_worker_mirrored_strategy": {"enabled": True}}, framework_version="2.8.0"),
    ),
    ("mirrored-strategy", "on PyTorch", torch2({"multi_worker_mirrored_strategy": {"enabled": True}})),
    ("parameter-server", "on PyTorch", torch2({"parameter_server": {"enabled": True}})),
    ("torchrun-framework", "on TensorFlow", tensorflow(TORCHRUN)),
    (
        "hugging-face-smp2",
        "parameters lost by the SDK",
        pytorch(
            smp({"hybrid_shard_degree": 16}, **TORCHRUN),
            estimator="HuggingFace",
            image_uri=OWN,
            framework_version=DROP,
        ),
    ),
    (
        "compiler-cluster",
        "on p5",
        pytorch(DROP, compiler_config=True, instance_type="ml.p5.48xlarge", instance_count=1),
    ),
    (
        "compiler-version",
        "PyTorch 2",
        torch2({"pytorchxla": {"enabled": True}}, compiler_config=True, instance_type="ml.p3.16xlarge"),
    ),
    (
        "compiler-strategy",
        "torchrun",
        pytorch(TORCHRUN, compiler_config=True, instance_type="ml.p3.16xlarge"),
    ),
    ("unknown-instance-type", "newer than the table", torch2(instance_type="ml.p9.48xlarge")),
    ("unknown-instance-type", "local mode", torch2(instance_type="local_gpu")),
    (
        "tensorflow-legacy",
        "1.10",
        tensorflow(DROP, framework_version="1.10.0", py_version="py2", instance_count=1),
    ),
    ("request-limit", "a long hyperparameter", torch2(hyperparameters={"note": "x" * 2600})),
    ("own-entry-point", "torchrun replaced", torch2(container_entry_point=["python3"])),
    (
        "processes-per-host-text",
        "a rendered template",
        torch2({"mpi": {"enabled": True, "processes_per_host": "8"}}),
    ),
    # --- SMP v1
    ("smp-parameters", "empty", pytorch(smp({}, **MPI))),
    ("smp-parameters", "a file's name", pytorch(smp("smp.json", **MPI))),
    ("smp-degree-missing", "no degree", seed({"pipeline_parallel_degree": DROP})),
    ("smp-degree-names", "both names", seed({"partitions": 4})),
    (
        "smp-degree-names",
        "the new name on TensorFlow",
        tensorflow(
            smp({"pipeline_parallel_degree": 2, "horovod": True}, **MPI),
            framework_version="2.6.3",
            py_version="py38",
            instance_type="ml.p3.16xlarge",
        ),
    ),
    (
        "smp-degree-names",
        "the old name on PyTorch 1.13",
        seed({"pipeline_parallel_degree": DROP, "partitions": 2}),
    ),
    ("smp-degree-names", "the new name before SMP 1.6", seed(framework_version="1.8.0", py_version="py36")),
    ("smp-parameter-unknown", "a singular", seed({"microbatch": 4})),
    (
        "smp-parameter-unknown",
        "ddp on TensorFlow",
        tensorflow(
            smp({"partitions": 2, "ddp": True}, **MPI),
            framework_version="2.6.3",
            py_version="py38",
            instance_type="ml.p3.16xlarge",
        ),
    ),
    ("smp-parameter-value", "degree 0, which the SDK takes", seed({"pipeline_parallel_degree": 0})),
    ("smp-parameter-value", "a placement of other letters", seed({"placement_strategy": "DPX"})),
    (
        "smp-parameter-value",
        "a permutation on TensorFlow",
        tensorflow(
            smp({"partitions": 2, "horovod": True, "placement_strategy": "DPT"}, **MPI),
            framework_version="2.6.3",
            py_version="py38",
            instance_type="ml.p3.16xlarge",
        ),
    ),
    ("smp-parameter-value", "a port beyond 65535", seed({"ddp_port": 70000})),
    ("smp-default-partition", "missing", seed({"auto_partition": False})),
    ("smp-default-partition", "beyond the degree", seed({"auto_partition": False, "default_partition": 2})),
    ("smp-ddp-settings", "both", seed({"horovod": True})),
    ("tensor-parallel-needs-ddp", "no ddp", seed({"tensor_parallel_degree": 2, "ddp": False})),
    ("smp-replicas-need-ddp", "four replicas", seed({"ddp": False})),
    ("smp-microbatches", "batch not divisible", seed(workload={"batch_per_gpu": 6})),
    ("smp-microbatches", "hyperparameter not divisible", seed(hyperparameters={"batch_size": 6})),
    ("smp-microbatches", "more active than there are", seed({"active_microbatches": 8})),
    ("smp-microbatches", "offloading one microbatch", seed({"offload_activations": True, "microbatches": 1})),
    # --- SMP v2
    ("smp2-parameter-unknown", "a typo", torch2(smp({"hybrid_shard_degre": 8}, **TORCHRUN))),
    ("smp2-degree-range", "beyond the world", torch2(smp({"tensor_parallel_degree": 32}, **TORCHRUN))),
    (
        "smp2-degree-range",
        "context beyond shards",
        torch2(smp({"hybrid_shard_degree": 2, "context_parallel_degree": 4}, **TORCHRUN)),
    ),
    ("smp2-degree-divides", "groups of three", torch2(smp({"tensor_parallel_degree": 3}, **TORCHRUN))),
    ("smp2-horizon", "without offloading", torch2(smp({"activation_loading_horizon": 2}, **TORCHRUN))),
    # --- processes
    ("processes-over-accelerators", "16 on 8", torch2({"mpi": {"enabled": True, "processes_per_host": 16}})),
    ("processes-over-accelerators", "8 on 4", seed(instance_type="ml.g4dn.12xlarge")),
    ("processes-under-accelerators", "4 on 8", torch2({"mpi": {"enabled": True, "processes_per_host": 4}})),
    ("processes-per-host-missing", "counted", seed(mpi={"mpi": {"enabled": True}})),
    ("degree-over-world", "16 of 8", seed({"pipeline_parallel_degree": 16})),
    ("world-not-divisible", "3 of 8", seed({"pipeline_parallel_degree": 3})),
    ("world-not-divisible", "2 x 8 of 8", seed({"tensor_parallel_degree": 8})),
    ("batch-split", "100 among 16", torch2(workload={"global_batch": 100})),
    ("learning-rate-warmup", "several hosts", torch2()),
    # --- cluster
    ("unknown-instance-type", "a typo", torch2(instance_type="ml.p4d.24xlarg")),
    ("smddp-instance", "g5", torch2(SMDDP, instance_type="ml.g5.48xlarge")),
    ("smddp-instance", "p5", torch2(SMDDP, instance_type="ml.p5.48xlarge")),
    ("smddp-instance", "p6", torch2(SMDDP, instance_type="ml.p6-b200.48xlarge")),
    ("smddp-instance", "CPUs", torch2(SMDDP, instance_type="ml.c5.18xlarge")),
    ("smddp-single-host", "one host", pytorch(SMDDP, instance_count=1)),
    ("smp1-instance", "CPUs", seed(instance_type="ml.c5.18xlarge")),
    ("smp1-instance", "p5en", seed(instance_type="ml.p5en.48xlarge")),
    ("smp2-instance", "CPUs", torch2(smp({}, **TORCHRUN), instance_type="ml.c5.18xlarge")),
    ("torchrun-instance", "CPUs", torch2(instance_type="ml.c5.2xlarge")),
    (
        "trainium-strategy",
        "mpi",
        pytorch(MPI, framework_version="1.11.0", py_version="py38", instance_type="ml.trn1.32xlarge"),
    ),
    ("group-and-type", "both forms", pytorch({**MPI, "instance_groups": ["gpu"]}, instance_groups=GROUPS)),
    (
        "group-name",
        "none named",
        pytorch(MPI, instance_groups=GROUPS, instance_type=DROP, instance_count=DROP),
    ),
    (
        "group-name",
        "a typo",
        pytorch(
            {**MPI, "instance_groups": ["gqu"]},
            instance_groups=GROUPS,
            instance_type=DROP,
            instance_count=DROP,
        ),
    ),
    ("group-name", "no groups", pytorch({**MPI, "instance_groups": ["gpu"]})),
    (
        "group-without-strategy",
        "nothing runs",
        pytorch(
            {"instance_groups": ["gpu"]}, instance_groups=GROUPS, instance_type=DROP, instance_count=DROP
        ),
    ),
    (
        "group-torchrun",
        "dropped by the SDK",
        torch2(
            {**TORCHRUN, "instance_groups": ["gpu"]},
            instance_groups=GROUPS,
            instance_type=DROP,
            instance_count=DROP,
        ),
    ),
    (
        "group-limit",
        "six",
        pytorch(
            {**MPI, "instance_groups": ["g0"]},
            instance_groups=[{**GROUPS[0], "instance_group_name": f"g{n}"} for n in range(6)],
            instance_type=DROP,
            instance_count=DROP,
        ),
    ),
    (
        "group-channels",
        "some without",
        pytorch(
            {**MPI, "instance_groups": ["gpu"]},
            instance_groups=GROUPS,
            instance_type=DROP,
            instance_count=DROP,
            fit={"a": {"s3_data": "s3://b/a", "instance_groups": ["gpu"]}, "b": "s3://b/b"},
        ),
    ),
    ("mpi-current-host", "two hosts", torch2(MPI)),
    # --- MPI options
    ("mpi-option-help", "a hostfile", mpi("-hostfile /opt/ml/hosts")),
    ("mpi-option-help", "an abbreviation", mpi("--he")),
    ("mpi-option-repeated", "the seed's flag", mpi("--mca btl_vader_single_copy_mechanism none")),
    (
        "mpi-option-repeated",
        "one of SMDDP's",
        pytorch(smddp(custom_mpi_options="-mca plm_rsh_num_concurrent 4")),
    ),
    ("mpi-option-repeated", "the user's own twice", mpi("--mca a 1 --mca a 2")),
    ("mpi-option-quotes", "a value with blanks", mpi("-x FOO='a b'")),
    ("mpi-option-abbreviated", "eaten", mpi("--NCCL_DEB INFO")),
    ("mpi-option-placement", "not overridden", mpi("-map-by ppr:8:node")),
    ("mpi-option-length", "too long", mpi("-x A=" + "b" * 2500)),
    ("efa-flags-harmful", "p3", mpi("-x FI_PROVIDER=efa", instance_type="ml.p3.16xlarge")),
    (
        "efa-flags-harmful",
        "in the environment",
        torch2(MPI, instance_type="ml.p3.16xlarge", environment={"FI_PROVIDER": "efa"}),
    ),
    ("efa-flags-redundant", "p4d", mpi("-x FI_PROVIDER=efa")),
    ("efa-flags-missing", "p5en", torch2(instance_type="ml.p5en.48xlarge")),
    # --- images
    ("smddp-version", "2.3.0 by version", pytorch(SMDDP, framework_version="2.3.0", py_version="py311")),
    ("smddp-version", "a short version", pytorch(SMDDP, framework_version="1.13")),
    (
        "smddp-version",
        "TensorFlow 2.12",
        tensorflow(SMDDP, framework_version="2.12.0", py_version="py310", instance_type="ml.p4d.24xlarge"),
    ),
    (
        "smddp-image",
        "a newer image",
        pytorch(SMDDP, image_uri=f"{DLC}/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker"),
    ),
    ("torchrun-version", "PyTorch 2.4.0", torch2(framework_version="2.4.0", py_version="py311")),
    ("torchrun-version", "newer than the table", torch2(framework_version="2.9.0", py_version="py312")),
    (
        "smp1-version",
        "PyTorch 2.1",
        seed(framework_version="2.1.0", py_version="py310", instance_type="ml.p4d.24xlarge"),
    ),
    ("python-2", "SMDDP", pytorch(SMDDP, py_version="py2")),
    (
        "blocked-image",
        "2.0.1 with CUDA 12",
        pytorch(SMDDP, image_uri=f"{DLC}/pytorch-training:2.0.1-gpu-py310-cu121-ubuntu20.04-sagemaker"),
    ),
    ("image-framework", "TensorFlow's image", torch2(image_uri=f"{DLC}/tensorflow-training:2.11.0-gpu-py39")),
    ("own-image", "torchrun", torch2(image_uri=OWN)),
    ("archived-library", "SMP v1", seed()),
    (
        "framework-version",
        "an SMP version for a PyTorch version",
        torch2(smp({}, **TORCHRUN), framework_version="2.3.0"),
    ),
    (
        "framework-version",
        "Trainium has 1.11.0 only",
        pytorch(TORCHRUN, framework_version="1.13.1", py_version="py38", instance_type="ml.trn1.32xlarge"),
    ),
    ("python-version", "the seed's py38", seed(py_version="py38")),
    ("image-region", "SMP v2 outside its regions", torch2(smp({}, **TORCHRUN), region="ap-southeast-3")),
    (
        "image-processor",
        "HuggingFace on CPUs",
        pytorch(
            DROP,
            estimator="HuggingFace",
            framework_version=DROP,
            transformers_version="4.26.0",
            pytorch_version="1.13.1",
            instance_type="ml.c5.2xlarge",
            instance_count=1,
        ),
    ),
    # --- data
    ("vpc-pair", "subnets alone", torch2(subnets=["subnet-1"])),
    ("vpc-rules", "several hosts", torch2(subnets=["subnet-1"], security_group_ids=["sg-1"])),
    ("file-system-needs-vpc", "FSx", torch2(fit=FILE_SYSTEM)),
    ("traffic-encryption", "several hosts", torch2(encrypt_inter_container_traffic=True)),
    ("volume-size-ignored", "p4d", torch2(volume_size=500)),
    ("volume-key-on-local-disks", "p4d", torch2(volume_kms_key="arn:aws:kms:us-west-2:123456789012:key/2")),
    (
        "file-system-throughput",
        "the seed's example",
        torch2(workload={"dataset_gb": 100, "epoch_seconds": 30, "file_system_mbps": 240}),
    ),
    ("checkpoint-local-path", "not kept", torch2(checkpoint_local_path="/opt/ml/checkpoints")),
    # --- limits
    ("runtime-limit", "over 28 days", torch2(max_run=2592000)),
    ("runtime-default", "24 hours", torch2()),
    (
        "runtime-below-need",
        "ten hours in one",
        torch2(max_run=3600, workload={"epochs": 10, "epoch_seconds": 3600}),
    ),
    ("task-timeout", "the task ends first", torch2(workload={"execution_timeout_seconds": 3600})),
    ("spot-wait", "no max_wait", torch2(use_spot_instances=True)),
    ("spot-wait", "max_wait below max_run", torch2(use_spot_instances=True, max_run=86400, max_wait=3600)),
    ("spot-without-checkpoints", "lost", torch2(use_spot_instances=True, max_wait=200000)),
    ("spot-signal", "not told", torch2(use_spot_instances=True, max_wait=200000)),
    ("keep-alive", "too long", torch2(keep_alive_period_in_seconds=30000)),
    (
        "keep-alive",
        "with Spot",
        torch2(keep_alive_period_in_seconds=600, use_spot_instances=True, max_wait=200000),
    ),
    (
        "pending-time",
        "too short",
        request(StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 60}),
    ),
    ("hyperparameter-length", "long parameters", torch2(smp({"x" * 2600: 1}, **TORCHRUN))),
    # --- Debugger
    ("debugger-closed", "rules", pytorch(SMDDP, rules=[{"profiler_rule": "CPUBottleneck"}])),
    ("debugger-rule", "a typo", pytorch(SMDDP, rules=[{"profiler_rule": "CPUBotleneck"}])),
    (
        "debugger-rules-without-profiler",
        "off",
        pytorch(SMDDP, rules=[{"profiler_rule": "CPUBottleneck"}], disable_profiler=True),
    ),
    ("debugger-region", "left out", pytorch(SMDDP, region="me-central-1", debugger_hook_config=True)),
    ("profiler-interval", "300 ms", pytorch(SMDDP, profiler_config={"system_monitor_interval_millis": 300})),
    ("framework-profiling", "PyTorch 2", torch2(profiler_config={"framework_profile": True})),
    ("profiler-setting", "an unknown key", torch2(profiler_config={"s3_output": "s3://b"})),
]
RIGHT = [
    pytest.param(seed(), id="the seed's PyTorch job with py39"),
    pytest.param(
        seed({"placement_strategy": "DPT"}), id="a placement that the SDK refuses and SMP documents"
    ),
    pytest.param(seed({"auto_partition": False, "default_partition": 1}), id="manual partitions"),
    pytest.param(pytorch(SMDDP), id="SMDDP on two p4d"),
    pytest.param(
        pytorch(smddp(custom_mpi_options="-verbose -x NCCL_DEBUG=VERSION")), id="the seed's MPI options"
    ),
    pytest.param(
        torch2({**SMDDP, **TORCHRUN}, instance_type="ml.p5.48xlarge"), id="SMDDP under torchrun on p5"
    ),
    pytest.param(torch2(MPI), id="MPI on every GPU"),
    pytest.param(torch2({"mpi": {"enabled": True}}, instance_type="ml.c5.2xlarge"), id="MPI on CPUs"),
    pytest.param(
        torch2(smp({"hybrid_shard_degree": 16, "tensor_parallel_degree": 4}, **TORCHRUN)), id="SMP v2"
    ),
    pytest.param(tensorflow({"multi_worker_mirrored_strategy": {"enabled": True}}), id="mirrored"),
    pytest.param(
        tensorflow({"parameter_server": {"enabled": True}}, instance_type="ml.c5.2xlarge"), id="servers"
    ),
    pytest.param(mpi("--NCCL_DEBUG INFO -x HOROVOD_TIMELINE"), id="the container's own option"),
    pytest.param(
        pytorch({"pytorchxla": {"enabled": True}}, compiler_config=True, instance_type="ml.p3.16xlarge"),
        id="PyTorch/XLA",
    ),
    pytest.param(TORCHRUN, id="a bare dictionary"),
    pytest.param(smp(SEED, **MPI), id="the seed's dictionary"),
    pytest.param(request(), id="a raw request"),
]


def found(data):
    return lint(Job.parse(data), installed_catalogue())


@pytest.mark.parametrize(
    ("rule", "data"), [pytest.param(rule, data, id=f"{rule}: {why}") for rule, why, data in CASES]
)
def test_a_breach_is_found_and_told_with_a_remedy(rule, data):
    [*breaches] = [problem for problem in found(data) if problem.rule == rule]

    assert breaches
    assert all(problem.message and problem.remedy for problem in breaches)


@pytest.mark.parametrize("data", RIGHT)
def test_a_right_job_has_no_error_and_no_warning(data):
    assert [str(problem) for problem in found(data) if problem.severity is not Severity.NOTE] == []


def test_every_rule_has_a_case():
    assert sorted(set(RULES) - {rule for rule, _why, _data in CASES}) == []


def test_every_case_names_a_known_rule():
    assert sorted({rule for rule, _why, _data in CASES} - set(RULES) - set(ALWAYS)) == []


@pytest.mark.parametrize(
    "rule", ["smddp-instance", "learning-rate-warmup", "framework-version", "unknown-argument"]
)
def test_any_rule_can_be_silenced_by_its_name(rule):
    data = torch2(SMDDP, instance_type="ml.g5.48xlarge", framework_version="9.9.9", nonsense=1)
    assert rule in {problem.rule for problem in found(data)}

    kept = lint(Job.parse(data), installed_catalogue(), silenced=[rule])

    assert rule not in {problem.rule for problem in kept}


def test_the_worst_comes_first():
    order = [problem.severity for problem in found(torch2({"torchdistributed": {}}, volume_size=1))]

    assert order == sorted(order, key=list(Severity).index)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(
            torch2(SMDDP, instance_type="ml.g5.48xlarge"), ["torch_distributed", "2 x 8"], id="torchrun on g5"
        ),
        pytest.param(
            torch2(SMDDP, instance_type="ml.p6-b200.48xlarge"), ["torch_distributed", "nccl"], id="on p6"
        ),
        pytest.param(
            pytorch(SMDDP, framework_version="2.3.0", py_version="py311"),
            ["2.2.0", f"{DLC}/pytorch-training:2.3.0-gpu-py311"],
            id="nearest version, and the image that has SMDDP",
        ),
        pytest.param(seed(py_version="py38"), ["py39"], id="the Python of the image"),
        pytest.param(
            torch2({"mpi": {"enabled": True, "process_per_host": 8}}), ["processes_per_host"], id="a typo"
        ),
        pytest.param(
            torch2(smp({}, **TORCHRUN), framework_version="2.3.0"), ["2.3.1"], id="SMP v2's version"
        ),
        pytest.param(
            torch2(instance_type="ml.p5en.48xlarge"), ["FI_PROVIDER=efa", "RDMAV_FORK_SAFE=1"], id="EFA"
        ),
    ],
)
def test_the_remedy_names_the_way_out(data, words):
    remedies = " ".join(p.remedy for p in found(data) if p.severity is not Severity.NOTE)

    assert [word for word in words if word not in remedies] == []


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        pytest.param("ml.p4d.24xlrage", Severity.ERROR, id="a slip"),
        pytest.param("p4d.24xlarge", Severity.ERROR, id="EC2's name"),
        pytest.param("ml.p9.48xlarge", Severity.WARNING, id="newer than the table"),
    ],
)
def test_a_misspelt_type_is_an_error_and_a_newer_one_is_not(name, severity):
    [problem] = [p for p in found(torch2(instance_type=name)) if p.rule == "unknown-instance-type"]

    assert problem.severity is severity


def test_a_newer_version_than_the_table_is_a_warning_only():
    severities = {p.rule: p.severity for p in found(torch2(framework_version="2.9.0", py_version="py312"))}

    assert severities["torchrun-version"] is Severity.WARNING


def test_a_problem_of_a_request_names_the_requests_field():
    data = request(
        HyperParameters={"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "16"}
    )

    fields = {problem.rule: problem.field for problem in found(data)}

    assert fields["processes-over-accelerators"] == "HyperParameters.sagemaker_mpi_num_of_processes_per_host"


def test_a_misspelt_field_of_a_request_is_suggested():
    [problem] = [p for p in found(request(StopingCondition={})) if p.rule == "unknown-field"]

    assert (problem.field, problem.remedy) == ("StopingCondition", "Did you mean StoppingCondition?")


def test_a_problem_of_a_bare_dictionary_names_its_own_key():
    assert "torchdistributed" in {problem.field for problem in found({"torchdistributed": {"enabled": True}})}
