"""Every error raised on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a problem matters: an error stops the run, a warning is logged, a note is advice."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with an input, and what to do about it."""

    rule: str
    """Kebab-case name, stable, so that the rule can be silenced."""
    field: str
    """The offending field as the user spells it, with its path: `distribution.mpi.processes_per_host`."""
    value: Any
    message: str
    """What is wrong and what is allowed."""
    remedy: str
    """The likely fix, as an instruction."""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.field}={self.value!r}: {self.message} {self.remedy} [{self.rule}]"


class SmdError(Exception):
    """Base of every error that this package raises on purpose."""

    worth_a_retry = True
    """False where another try would end the same: the task fails at once, whatever `retries` says."""


class InvalidInput(SmdError):
    """The input has problems, all of them listed; nothing was created."""

    worth_a_retry = False

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        super().__init__(
            f"{count} problem{'s' if count != 1 else ''} found before anything was created:\n"
            + "\n".join(f"  - {problem}" for problem in self.problems)
        )


def refuse(problems: Iterable[Problem]) -> None:
    """Raise InvalidInput if any problem is an error."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        raise InvalidInput(errors)


class UnexpectedAnswer(SmdError):
    """AWS answered with something that this version does not know; it is never taken for success."""


class NameTaken(SmdError):
    """Something of this name is there already."""


class NotOurs(SmdError):
    """Something has our name and was not started by this task; we neither follow nor replace it."""

    worth_a_retry = False


class TrainingFailed(SmdError):
    """The training job did not succeed."""

    advice = "Read the job's log for the first error of the first host that failed."

    def __init__(self, job_name: str, reason: str) -> None:
        self.job_name = job_name
        self.reason = reason
        super().__init__(f"{job_name}: {reason} {self.advice}")


class AlgorithmFailed(TrainingFailed):
    """The user's code ended with an error; another try would end the same."""

    worth_a_retry = False

    advice = "The training code failed: mend it before the next try."


class CapacityUnavailable(TrainingFailed):
    """AWS had no such instances free; worth another try later, or on another type."""

    advice = "Try again later, in another Availability Zone, or on another instance type."


class ResourceLimitReached(TrainingFailed):
    """The account's quota for this instance type is used up."""

    advice = "Wait for other jobs to end, or ask for a higher quota in Service Quotas."


class InternalFailure(TrainingFailed):
    """SageMaker itself failed; worth another try."""

    advice = "SageMaker failed, not the training code: try again."


class ImageNotUsable(TrainingFailed):
    """SageMaker could not pull or start the training image."""

    worth_a_retry = False

    advice = "Check that the image exists in this Region and that the role may pull it."


class DataNotReadable(TrainingFailed):
    """SageMaker could not read an input channel."""

    worth_a_retry = False

    advice = "Check that the input exists and that the role may read it."


class SpotInterrupted(TrainingFailed):
    """AWS took the Spot capacity back; worth another try, from the last checkpoint."""

    advice = "Try again: training resumes from its last checkpoint."


class RuntimeExceeded(TrainingFailed):
    """The job reached MaxRuntimeInSeconds or MaxWaitTimeInSeconds and was stopped."""

    worth_a_retry = False

    advice = "Raise max_run (or max_wait), or make the job shorter."


class TrainingStopped(TrainingFailed):
    """A person or a program stopped the job."""

    worth_a_retry = False

    advice = "Somebody stopped the job; clear the task to train again."


class TaskTimedOut(SmdError):
    """The task's execution_timeout passed; what it waited for was stopped."""


class AccessRefused(SmdError):
    """The credentials of the connection may not do this."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(
            f"Not allowed to {what}: {message} Give the connection's role this permission, or name another."
        )


class ImageBuildFailed(SmdError):
    """The image was not built: a step failed, and another try would fail the same."""

    worth_a_retry = False

    advice = "Mend the step that failed; the recipe's other layers are kept."

    def __init__(
        self, *, build_id: str, phase: str, reason: str, log_lines: Iterable[str] = (), link: str = ""
    ) -> None:
        self.build_id = build_id
        self.phase = phase
        self.reason = reason
        self.log_lines = tuple(log_lines)
        """The last lines that the build wrote, oldest first."""
        self.link = link
        tail = "".join(f"\n  | {line}" for line in self.log_lines) or " (the build wrote no log)"
        super().__init__(
            f"{build_id} ended in {phase}: {reason} {self.advice}\nIts log {link} ends with{tail}"
        )


class ImageBuildFault(ImageBuildFailed):
    """CodeBuild itself failed; worth another try."""

    worth_a_retry = True

    advice = "CodeBuild failed, not the recipe: try again."


class ImageBuildTimedOut(ImageBuildFailed):
    """The build took longer than it may."""

    worth_a_retry = True

    advice = "Raise build.timeout_minutes, or take a larger build.compute_type."


class ImageBuildStopped(ImageBuildFailed):
    """A person or a program stopped the build."""

    advice = "Somebody stopped the build; run the task again to build anew."


class FileSystemRefused(SmdError):
    """FSx refused a request about a file system, and would refuse it again."""

    worth_a_retry = False

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"FSx refused: {message} [{code}]")


class FileSystemLimitReached(SmdError):
    """The account may have no further file system, or none that large; worth another try when others went."""

    def __init__(self, limit: str, message: str) -> None:
        self.limit = limit
        super().__init__(
            f"{message} [{limit}] Delete file systems that no run needs, or ask for more in Service Quotas."
        )


class FileSystemTokenTaken(SmdError):
    """Our request token made a file system before with another request; the next try finds it by its tag."""


class FileSystemBroken(SmdError):
    """A file system or its link to S3 failed; the next try makes another."""

    def __init__(self, name: str, state: str, reason: str) -> None:
        self.name = name
        super().__init__(f"{name} is {state}: {reason or 'FSx gives no reason.'}")


class FileSystemLate(SmdError):
    """A file system took longer than it may to appear, to be linked or to go; the next try waits on."""


class DatasetUnreadable(SmdError):
    """Objects in S3 cannot be listed, read or written as a data set must."""

    worth_a_retry = False

    def __init__(self, uri: str, message: str) -> None:
        self.uri = uri
        super().__init__(f"{uri}: {message}")


class BucketMissing(DatasetUnreadable):
    """There is no such bucket."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, "the bucket does not exist. Correct the name, or the connection's account.")


class BucketElsewhere(DatasetUnreadable):
    """The bucket lies in another Region, which SageMaker cannot read from."""

    def __init__(self, uri: str, region: str) -> None:
        super().__init__(
            uri, f"the bucket lies in {region or 'another Region'}. Use one in the job's Region."
        )


class DatasetEmpty(DatasetUnreadable):
    """No object of data lies under the prefix."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            uri,
            "no object lies under this prefix (names that begin with . or _ do not count). Correct it: "
            "it names a folder, not one object.",
        )


class DatasetDenied(DatasetUnreadable):
    """The credentials of the connection may not list, read or write there."""

    def __init__(self, uri: str, action: str, message: str) -> None:
        super().__init__(
            uri, f"{action} is not allowed ({message}). Give the connection's role {action} on it."
        )


class SourceChanged(SmdError):
    """The raw data changed while they were read; the next try makes shards of the new data."""

    def __init__(self, uri: str, message: str) -> None:
        self.uri = uri
        super().__init__(f"{uri} changed while it was read: {message}. Try again when writing has ended.")


class ProcessingRefused(SmdError):
    """SageMaker refused to create the processing job, and would refuse it again."""

    worth_a_retry = False

    def __init__(self, job_name: str, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"SageMaker refused {job_name}: {message} [{code}]")


class PreprocessFailed(SmdError):
    """The processing job did not succeed."""

    worth_a_retry = False

    advice = "Mend the data or the transform; the job's log has the traceback."

    def __init__(self, job_name: str, failure_reason: str, exit_message: str) -> None:
        self.job_name = job_name
        self.failure_reason = failure_reason
        self.exit_message = exit_message
        said = exit_message.strip() or failure_reason or "AWS gives no reason."
        also = f" ({failure_reason})" if exit_message.strip() and failure_reason else ""
        super().__init__(f"{job_name}: {said}{also} {self.advice}")


class PreprocessTransient(PreprocessFailed):
    """AWS had no instances, no quota or a fault of its own; worth another try."""

    worth_a_retry = True

    advice = "AWS failed, not the work: try again later."


class PreprocessStopped(PreprocessFailed):
    """The job was stopped: by a person, or because it reached its time limit."""

    advice = "Clear the task to start anew; raise job.max_run_seconds if the time was too short."


class SweepIncomplete(SmdError):
    """A sweep could not see or remove everything; it did the rest, and the next try goes on."""

    def __init__(self, failures: Iterable[str]) -> None:
        self.failures = tuple(failures)
        super().__init__("The sweep is not complete:\n" + "\n".join(f"  - {one}" for one in self.failures))
