"""The digit classifier trained in each way that a host can start a script, on the same shards."""

from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_smd.domain.metrics import METRIC_DEFINITIONS
from airflow_smd.operators import SageMakerDistributedTrainingOperator, SageMakerPreprocessOperator

CODE = Path(__file__).parent / "smd_retrain_code"
SITE = "{{ var.json.smd.%s }}"
STRATEGIES = {
    "mpi": ("train_digits.py", {"mpi": {"enabled": True, "processes_per_host": 1}}),
    "torchrun": ("train_ddp.py", {"torch_distributed": {"enabled": True}}),
    # the seed's own example; SMDDP wants p4d on AWS, which the sandbox would fill with sixteen processes
    "smddp": (
        "train_ddp.py",
        {
            "smdistributed": {
                "dataparallel": {"enabled": True, "custom_mpi_options": "-verbose -x NCCL_DEBUG=VERSION"}
            }
        },
    ),
}

with DAG(
    dag_id="strategies",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    render_template_as_native_obj=True,
    default_args={"poll_seconds": 1, "retries": 0},
):
    preprocess = SageMakerPreprocessOperator(
        task_id="preprocess",
        source_uri="s3://airflow-smd-demo/raw/digits/",
        output_uri=f"{SITE % 'work_uri'}/shards",
        transform={"kind": "tabular", "label_column": -1},
        world_sizes=[2],
        role=SITE % "role",
    )
    for name, (script, distribution) in STRATEGIES.items():
        preprocess >> SageMakerDistributedTrainingOperator(
            task_id=name,
            job={
                "entry_point": script,
                "source_dir": str(CODE),
                "framework_version": "2.2.0",
                "py_version": "py310",
                "role": SITE % "role",
                "instance_type": "ml.g5.xlarge",
                "instance_count": 2,
                "distribution": distribution,
                "hyperparameters": {"epochs": 20, "batch-size-per-gpu": 32},
                "metric_definitions": METRIC_DEFINITIONS,
                "max_run": 600,
            },
            inputs="{{ {'training': ti.xcom_pull('preprocess')['uri']} }}",
            work_uri=SITE % "work_uri",
            ignore_rules=["smddp-instance"],
        )
