"""What importing the operators costs a DAG file, beside the Amazon provider's and the SageMaker SDK's.

    python benchmarks/parse.py [ROUNDS]

Each import runs in a fresh interpreter that has `airflow.sdk` already, since every DAG file has it. The
rounds are interleaved, the least CPU time of each counts, and the report gives ratios.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

BASE = "import airflow.sdk; from airflow.sdk import DAG, Param, BaseOperator"
WANTED = {
    "airflow_smd.operators, no name used": "import airflow_smd.operators",
    "airflow_smd.operators, every name used": "from airflow_smd.operators import "
    + ", ".join(
        [
            "LustreCreateOperator",
            "LustreDeleteOperator",
            "SageMakerDistributedTrainingOperator",
            "SageMakerPreprocessOperator",
            "TrainingImageBuildOperator",
            "TrainingPreflightOperator",
            "TrainingReportOperator",
        ]
    ),
    "Amazon provider's SageMaker operators": "import airflow.providers.amazon.aws.operators.sagemaker",
    "sagemaker.train.model_trainer": "import sagemaker.train.model_trainer",
}
HEAVY = ("sagemaker", "torch", "pandas", "moto", "fastapi", "boto3", "numpy")
PROGRAM = """
import json, resource, sys, time
{base}
loaded, memory = set(sys.modules), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
{wanted}
seconds = time.process_time() - start
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
new = set(sys.modules) - loaded
heavy = sorted(name for name in {heavy!r} if name in new)
print(json.dumps({{"seconds": seconds, "mb": grown / 1024, "modules": len(new), "heavy": heavy}}))
"""


def measure(wanted: str) -> dict:
    program = PROGRAM.format(base=BASE, wanted=wanted, heavy=HEAVY)
    # byte code is kept, as in an installed Airflow; the first round writes it and does not count
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(answer.stdout.splitlines()[-1])


def main(rounds: int) -> None:
    results: dict[str, list[dict]] = {name: [] for name in WANTED}
    for number in range(rounds + 1):
        for name, wanted in WANTED.items():
            result = measure(wanted)
            if number:
                results[name].append(result)
    ours = min(result["seconds"] for result in results["airflow_smd.operators, every name used"])
    print(f"{'on top of airflow.sdk':40} {'CPU ms':>8} {'ours = 1':>9} {'MB':>6} {'modules':>8}  heavy")
    for name, found in results.items():
        best = min(found, key=lambda result: result["seconds"])
        ratio = best["seconds"] / ours
        row = f"{best['seconds'] * 1000:8.0f} {ratio:9.1f} {best['mb']:6.0f} {best['modules']:8}"
        print(f"{name:40} {row}  {', '.join(best['heavy']) or '-'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
