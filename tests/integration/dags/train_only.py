"""One training job on data that lies in S3 already, waited for in the worker or in the triggerer."""

from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_smd.operators import SageMakerDistributedTrainingOperator

with DAG(
    dag_id="train_only",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    render_template_as_native_obj=True,
    params={"seconds": Param(20, type="integer"), "deferrable": Param(False, type="boolean")},
):
    for task_id, deferrable in (("in_worker", False), ("in_triggerer", True)):
        SageMakerDistributedTrainingOperator(
            task_id=task_id,
            job={
                "entry_point": "wait.py",
                "source_dir": str(Path(__file__).parent / "wait_code"),
                "framework_version": "2.2.0",
                "py_version": "py310",
                "role": "{{ var.json.smd.role }}",
                "instance_type": "ml.g5.xlarge",
                "instance_count": 1,
                "hyperparameters": {"seconds": "{{ params.seconds }}"},
                "max_run": 600,
            },
            work_uri="{{ var.json.smd.work_uri }}",
            deferrable=deferrable,
            poll_seconds=0.5,
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
