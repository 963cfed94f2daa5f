"""What a thousand deferred training jobs cost a triggerer: our triggers beside the Amazon provider's.

    python benchmarks/waiting.py [JOBS] [POLL_SECONDS]

Each contestant waits for all jobs in one event loop of a fresh process, against a stub of SageMaker and
CloudWatch Logs on this machine that answers at once. It starts all triggers together, idles for a minute
after every job was looked at once, then sees all jobs end at random instants. Ratios count, not seconds; a
full run takes a quarter of an hour. Without aiobotocore, which it needs, the provider's trigger is left out.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

CONTESTANTS = {
    "ours": "ours, status only",
    "logs": "ours, with the logs of all hosts",
    "provider": "Amazon provider's SageMakerTrigger",
}
IDLE_SECONDS = 60.0
ENDING_SECONDS = 30.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: %d\r\n\r\n"
ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"


class Stub:
    """SageMaker's and CloudWatch's answers, and under GET what a benchmark asks."""

    def __init__(self, secondary_status: str) -> None:
        self.status = secondary_status
        self.began = time.time()
        self.ends: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.looked: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().splitlines()
                fields = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                target = fields.get("x-amz-target", "")
                asked = self.aws(target, json.loads(body)) if target else self.ask(first.split()[1])
                answer = json.dumps(asked).encode()
                writer.write(HEAD % len(answer) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def aws(self, target: str, request: dict) -> dict:
        operation = target.rpartition(".")[2]
        self.calls[operation] += 1
        now = time.time()
        match operation:
            case "DescribeTrainingJob":
                self.looked.add(request["TrainingJobName"])
                return self.job(request["TrainingJobName"], now) | {"ResourceConfig": {"InstanceCount": 2}}
            case "ListTrainingJobs":
                after, start = request["LastModifiedTimeAfter"], int(request.get("NextToken", 0))
                found = [name for name, at in self.ends.items() if after < at <= now]
                more = {"NextToken": str(start + 100)} if len(found) > start + 100 else {}
                page = [self.job(name, now) for name in found[start : start + 100]]
                return {"TrainingJobSummaries": page} | more
            case "DescribeLogStreams":
                names = [f"{request['logStreamNamePrefix']}algo-{host}-1" for host in (1, 2)]
                return {"logStreams": [{"logStreamName": name} for name in names]}
            case "FilterLogEvents":
                lines = [
                    {
                        "logStreamName": name,
                        "timestamp": int(now * 1000),
                        "message": f"step {now}",
                        "eventId": f"{name}{now}",
                    }
                    for name in request["logStreamNames"]
                ]
                return {"events": lines}
        raise AssertionError(target)

    def job(self, name: str, now: float) -> dict:
        end = self.ends.get(name, now + 1)
        over = now >= end
        return {
            "TrainingJobName": name,
            "TrainingJobArn": ARN + name,
            "CreationTime": self.began,
            "LastModifiedTime": end if over else self.began,
            "TrainingJobStatus": "Completed" if over else "InProgress",
            "SecondaryStatus": "Completed" if over else self.status,
        }

    def ask(self, path: str) -> dict:
        what, _, number = path.strip("/").partition("/")
        if what == "end":
            now, chance = time.time(), random.Random(1)
            self.ends = {name: now + ENDING_SECONDS * chance.random() for name in names(int(number))}
            return self.ends
        return {"calls": dict(self.calls), "looked": len(self.looked)}


def names(count: int) -> list[str]:
    return [f"smd-job-{number:05}" for number in range(count)]


async def stub(secondary_status: str) -> None:
    server = await asyncio.start_server(Stub(secondary_status).serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def triggers(contestant: str, count: int, poll: float) -> list:
    if contestant == "provider":
        from airflow.providers.amazon.aws.triggers.sagemaker import SageMakerTrigger

        # as SageMakerTrainingOperator makes it, but for its limit of attempts
        fixed = {"job_type": "Training", "waiter_delay": poll, "waiter_max_attempts": 10**6}
        return [
            SageMakerTrigger(job_name=name, aws_conn_id=None, region_name="us-east-1", **fixed)
            for name in names(count)
        ]
    from airflow_smd.triggers.training import TrainingTrigger

    connection = {"aws_conn_id": None, "region_name": "us-east-1"}
    return [TrainingTrigger(job_name=name, connection=connection, poll_seconds=poll) for name in names(count)]


async def contest(contestant: str, url: str, count: int, poll: float) -> dict:
    """Wait for all jobs and return what it cost."""
    triggers(contestant, 1, poll)  # the import is no part of it
    base_kib = rss_kib()
    fired: dict[str, float] = {}
    worst_freeze = 0.0

    async def wait(name: str, trigger: object) -> None:
        async for _ in trigger.run():
            fired[name] = time.time()

    async def watch() -> None:
        nonlocal worst_freeze
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.25)
            worst_freeze = max(worst_freeze, time.monotonic() - before - 0.25)

    async def ask(path: str) -> dict:
        return await asyncio.to_thread(lambda: json.load(urlopen(f"{url}/{path}")))

    began, cpu = time.monotonic(), time.process_time()
    waits = [
        asyncio.create_task(wait(name, trigger))
        for name, trigger in zip(names(count), triggers(contestant, count, poll), strict=True)
    ]
    watching = asyncio.create_task(watch())
    while (await ask("stats"))["looked"] < count:
        await asyncio.sleep(1)
    start = {"start_seconds": time.monotonic() - began, "start_cpu_seconds": time.process_time() - cpu}
    start["start_calls"] = sum((await ask("stats"))["calls"].values())
    cpu = time.process_time()
    await asyncio.sleep(IDLE_SECONDS)
    idle_calls = sum((await ask("stats"))["calls"].values()) - start["start_calls"]
    idle_cpu, peak_kib = time.process_time() - cpu, rss_kib()
    ends = await ask(f"end/{count}")
    await asyncio.wait(waits, timeout=ENDING_SECONDS + 10 * poll)
    watching.cancel()
    delays = [fired[name] - ends[name] for name in fired]
    return start | {
        "idle_calls_per_job_hour": idle_calls / count / IDLE_SECONDS * 3600,
        "idle_cpu_seconds_per_hour": idle_cpu / IDLE_SECONDS * 3600,
        "kib_per_job": (peak_kib - base_kib) / count,
        "seen": len(fired),
        "mean_delay_seconds": sum(delays) / len(delays),
        "worst_delay_seconds": max(delays),
        "worst_freeze_seconds": worst_freeze,
        "total_calls": sum((await ask("stats"))["calls"].values()),
        "total_cpu_seconds": time.process_time(),
    }


def rss_kib() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        return int(
            next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(contestant: str, count: int, poll: float) -> dict:
    """Run one contestant in a process of its own against a stub in another."""
    me = [sys.executable, __file__]
    status = "Training" if contestant == "logs" else "Downloading"
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen([*me, "stub", status], stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            environment = os.environ | {
                "AIRFLOW_HOME": home,
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "benchmark",
                "AWS_SECRET_ACCESS_KEY": "benchmark",
            }
            result = Path(home, "result.json")
            subprocess.run(
                [*me, "contest", contestant, url, str(count), str(poll), str(result)],
                env=environment, check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            return json.loads(result.read_text())
        finally:
            server.terminate()


def main(count: int, poll: float) -> None:
    left_out = [] if importlib.util.find_spec("aiobotocore") else ["provider"]
    found = {name: run(name, count, poll) for name in CONTESTANTS if name not in left_out}
    print(f"{count} jobs, polled every {poll:g} s\n")
    print(f"{'':28}" + "".join(f"{CONTESTANTS[name]:>36}" for name in found))
    for row in found["ours"]:
        print(f"{row:28}" + "".join(f"{found[name][row]:36.2f}" for name in found))
    print("\nOurs describe each job once an hour besides, which an idle minute does not show.")
    if left_out:
        print("aiobotocore is not installed, so the provider's trigger was left out.")
        return
    rows = ("idle_cpu_seconds_per_hour", "start_cpu_seconds", "kib_per_job", "mean_delay_seconds")
    for name in ("ours", "logs"):
        calls = found["provider"]["idle_calls_per_job_hour"] / (found[name]["idle_calls_per_job_hour"] + 1)
        ratios = {"calls": calls} | {row: found["provider"][row] / found[name][row] for row in rows}
        print(
            f"provider / {CONTESTANTS[name]}: "
            + ", ".join(f"{row} {ratio:.1f}" for row, ratio in ratios.items())
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stub", status]:
            asyncio.run(stub(status))
        case ["contest", contestant, url, count, poll, result]:
            Path(result).write_text(
                json.dumps(asyncio.run(contest(contestant, url, int(count), float(poll))))
            )
        case arguments:
            main(int(arguments[0]) if arguments else 1000, float(arguments[1]) if arguments[1:] else 30.0)
