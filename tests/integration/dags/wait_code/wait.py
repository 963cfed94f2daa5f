"""A training script that takes its time."""

import argparse
import time

from airflow_smd.container.report import report

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=int)
arguments, _ = parser.parse_known_args()
for second in range(arguments.seconds):
    report(step=second + 1, steps=arguments.seconds)
    time.sleep(1)
