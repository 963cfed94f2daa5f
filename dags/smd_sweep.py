"""Find every day what runs have left on AWS and what it costs; remove it after a grace period, if told to.

Only reports, until `dry_run` is off: for one run in its form, for every run in the defaults below.
"""

from datetime import datetime

from airflow.sdk import DAG, Param

from airflow_smd.operators import SweepOperator

with DAG(
    dag_id="smd_sweep",
    description="Find and remove what nobody needs any more on Amazon SageMaker, FSx and CodeBuild",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    tags=["sagemaker", "cost"],
    params={
        "dry_run": Param(True, type="boolean", title="Only report"),
        "grace_hours": Param(1, type="number", minimum=0, title="Hours that an orphan is left"),
        "time_to_live_hours": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            title="Age in hours at which a thing goes even if its run is not over",
        ),
    },
):
    SweepOperator(
        task_id="sweep",
        dry_run="{{ params.dry_run }}",
        grace_seconds="{{ params.grace_hours * 3600 }}",
        time_to_live_seconds="{{ params.time_to_live_hours and params.time_to_live_hours * 3600 }}",
        deferrable=True,
    )
