"""Retrain the digit classifier every week: shards, file system, image, distributed training, report.

Preprocessing and the image are reused while nothing changed; the file system lives as long as the training.
Site settings are the Airflow Variable `smd`: role, codebuild_role, subnet_id, security_group_ids, work_uri.
"""

from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_smd.domain.instances import processes_per_host
from airflow_smd.domain.metrics import METRIC_DEFINITIONS
from airflow_smd.operators import (
    LustreCreateOperator,
    LustreDeleteOperator,
    SageMakerDistributedTrainingOperator,
    SageMakerPreprocessOperator,
    TrainingImageBuildOperator,
    TrainingPreflightOperator,
    TrainingReportOperator,
)

CODE = Path(__file__).parent / "smd_retrain_code"
SITE = "{{ var.json.smd.%s }}"
WORK_URI = SITE % "work_uri"

JOB = {
    "entry_point": "train_digits.py",
    "source_dir": str(CODE),
    "framework_version": "2.2.0",
    "py_version": "py310",
    "role": SITE % "role",
    "instance_type": "{{ params.instance_type }}",
    "instance_count": "{{ params.nodes }}",
    # one process per GPU; for PyTorch and SMDDP: train_ddp.py and {"smdistributed": {"dataparallel": ...}}
    "distribution": {
        "mpi": {"enabled": True, "processes_per_host": "{{ processes_per_host(params.instance_type) }}"}
    },
    "hyperparameters": {
        "epochs": "{{ params.epochs }}",
        "batch-size-per-gpu": "{{ params.batch_size_per_gpu }}",
        "target-accuracy": 0.95,
    },
    "metric_definitions": METRIC_DEFINITIONS,
    "max_run": 3600,
}

with DAG(
    dag_id="smd_retrain",
    description="Retrain the digit classifier on Amazon SageMaker",
    doc_md=__doc__,
    schedule="@weekly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    user_defined_macros={"processes_per_host": processes_per_host},
    default_args={"retries": 2, "deferrable": True},
    tags=["sagemaker", "training"],
    params={
        "dataset_uri": Param(
            "s3://airflow-smd-demo/raw/digits/",
            type="string",
            pattern="^s3://.+",
            title="Data set (S3 prefix)",
        ),
        "instance_type": Param(
            "ml.g5.12xlarge",
            type="string",
            enum=[
                "ml.g5.12xlarge",
                "ml.g5.48xlarge",
                "ml.p4d.24xlarge",
                "ml.p4de.24xlarge",
                "ml.p5.48xlarge",
            ],
            title="Instance type",
        ),
        "nodes": Param(2, type="integer", minimum=1, maximum=64, title="Number of instances"),
        "epochs": Param(30, type="integer", minimum=1, title="Epochs"),
        "batch_size_per_gpu": Param(16, type="integer", minimum=1, title="Batch size per GPU"),
        "target_epoch_seconds": Param(
            30, type="number", exclusiveMinimum=0, title="Seconds an epoch may take"
        ),
        "budget_usd": Param(
            50, type="number", exclusiveMinimum=0, title="Budget (USD), at the longest run time"
        ),
    },
) as dag:
    preflight = TrainingPreflightOperator(
        task_id="preflight",
        job=JOB,
        source_uri="{{ params.dataset_uri }}",
        work_uri=WORK_URI,
        budget_usd="{{ params.budget_usd }}",
    )
    preprocess = SageMakerPreprocessOperator(
        task_id="preprocess",
        source_uri="{{ params.dataset_uri }}",
        output_uri=f"{WORK_URI}/shards",
        transform={"kind": "tabular", "label_column": -1},
        world_sizes=["{{ params.nodes * processes_per_host(params.instance_type) }}"],
        role=SITE % "role",
        instance_type="ml.m5.xlarge",
    )
    file_system = LustreCreateOperator(
        task_id="create_file_system",
        dataset=preprocess.output,
        nodes="{{ params.nodes }}",
        instance_type="{{ params.instance_type }}",
        epoch_seconds="{{ params.target_epoch_seconds }}",
        epochs="{{ params.epochs }}",
        subnet_id=SITE % "subnet_id",
        security_group_ids=SITE % "security_group_ids",
    ).as_setup()
    image = TrainingImageBuildOperator(
        task_id="build_image",
        repository="smd-digits",
        base_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310",
        source_dir=str(CODE),
        work_uri=WORK_URI,
        codebuild_role_arn=SITE % "codebuild_role",
    )
    train = SageMakerDistributedTrainingOperator(
        task_id="train",
        job=JOB | {"image_uri": "{{ ti.xcom_pull('build_image')['image_uri'] }}"},
        file_system=file_system.output,
        work_uri=WORK_URI,
    )
    report = TrainingReportOperator(
        task_id="report",
        training=train.output,
        preprocess=preprocess.output,
        file_system=file_system.output,
        image=image.output,
        work_uri=WORK_URI,
    )
    delete = LustreDeleteOperator(task_id="delete_file_system", file_system=file_system.output).as_teardown(
        setups=file_system
    )

    preflight >> [preprocess, image]
    preprocess >> file_system >> train >> report >> delete
    image >> train
