"""Arbitrary input: one reported error at most, no lost key, no request that botocore refuses."""

import copy

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_smd.aws.containers import installed_catalogue
from airflow_smd.domain.distribution import Job, compile_job, conventional_uris, lint
from airflow_smd.domain.distribution.facts import DISTRIBUTION_KEYS, arguments, parameters
from airflow_smd.errors import InvalidInput, Problem

INPUT = Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["True", "s3://b/p", "ml.p4d.24xlarge", "2.2.0", "-hostfile x", "--mca btl x", 10**30])
    | st.binary(max_size=3)
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
SECTION_KEYS = [
    "enabled",
    "processes_per_host",
    "custom_mpi_options",
    "parameters",
    "dataparallel",
    "modelparallel",
]
sections = st.dictionaries(
    st.sampled_from(SECTION_KEYS) | st.text(max_size=5),
    anything
    | st.dictionaries(
        st.sampled_from([*SECTION_KEYS, *parameters("smp1"), *parameters("smp2")]), anything, max_size=4
    ),
    max_size=4,
)
distributions = st.dictionaries(
    st.sampled_from([*DISTRIBUTION_KEYS, "torchdistributed"]), sections | anything, max_size=3
)
GOOD = {
    "role": "arn:aws:iam::123456789012:role/SageMakerRole",
    "entry_point": "train.py",
    "framework_version": "2.2.0",
    "py_version": "py310",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
}
kwargs = st.dictionaries(st.sampled_from(sorted(arguments())), anything, max_size=4)
jobs = st.fixed_dictionaries(
    {},
    optional={
        "estimator": st.sampled_from(["PyTorch", "TensorFlow", "HuggingFace", "Estimator"]) | anything,
        "region": st.sampled_from(["us-west-2", "cn-north-1"]) | anything,
        "kwargs": st.builds(
            lambda some, d: GOOD | some | d,
            kwargs,
            st.just({}) | st.builds(lambda v: {"distribution": v}, distributions),
        )
        | anything,
        "fit": anything | st.just("s3://b/p"),
        "workload": anything,
    },
)
REQUEST_KEYS = [*INPUT.members]
requests = st.dictionaries(st.sampled_from(REQUEST_KEYS), anything, min_size=1, max_size=5)


def _compiled(job):
    name = "smd-1"
    try:
        source, output = conventional_uris(job, name)
        return compile_job(job, installed_catalogue(), name=name, source_uri=source, output_uri=output)
    except InvalidInput:
        return None


@SLOW
@given(st.one_of(jobs, requests, distributions, anything))
def test_anything_gives_problems_or_a_request_that_botocore_takes(data):
    before = copy.deepcopy(data)

    job = Job.parse(data)
    problems = lint(job, installed_catalogue())
    request = _compiled(job)

    assert all(isinstance(problem, Problem) and problem.remedy and problem.message for problem in problems)
    assert repr(data) == repr(before)
    if request is not None:
        assert ParamValidator().validate(request, INPUT).generate_report() == ""


@SLOW
@given(jobs)
def test_the_compiler_refuses_whatever_the_linter_calls_an_error(data):
    job = Job.parse(data)

    if any(problem.severity == "error" for problem in lint(job, installed_catalogue())):
        assert _compiled(job) is None


@SLOW
@given(st.text(min_size=1, max_size=10), anything)
def test_no_unknown_argument_is_dropped_in_silence(name, value):
    if name in arguments():
        return
    job = Job.parse({"estimator": "PyTorch", "region": "us-west-2", "kwargs": GOOD | {name: value}})

    assert [problem for problem in job.problems if problem.field.startswith(f"kwargs.{name}")]


@SLOW
@given(st.text(min_size=1, max_size=10), anything)
def test_no_unknown_distribution_key_is_dropped_in_silence(name, value):
    if name in DISTRIBUTION_KEYS:
        return
    job = Job.parse({"region": "us-west-2", "kwargs": GOOD | {"distribution": {name: value}}})

    problems = lint(job, installed_catalogue())

    assert [problem for problem in problems if problem.field.startswith(f"distribution.{name}")]


def test_endless_nesting_is_one_problem_and_no_crash():
    deep = []
    for _level in range(900):
        deep = [deep]

    job = Job.parse({"kwargs": GOOD | {"hyperparameters": {"deep": deep}}})

    assert [problem.rule for problem in job.problems] == ["not-json"]


@pytest.mark.parametrize("data", [None, 3, "x", [], b"", {1: 2}], ids=repr)
def test_what_is_no_mapping_is_one_problem_and_no_crash(data):
    assert Job.parse(data).problems or data in ({}, [])


_words = st.text(min_size=0, max_size=20)
_of_kind = {
    "int": st.integers(-5, 10**7),
    "str": _words | st.sampled_from(["s3://bucket/prefix", "ml.g5.48xlarge", "File", "train.py"]),
    "bool": st.booleans(),
    "map": st.dictionaries(_words, _words | st.integers(), max_size=3),
    "list": st.lists(
        st.dictionaries(st.sampled_from(["Name", "Regex", "profiler_rule"]), _words), max_size=2
    ),
    "strs": st.lists(_words, max_size=3),
    "switch": st.booleans() | st.just({}),
    "path": _words | st.just(False),
    "tags": st.dictionaries(_words, _words, max_size=3),
    "any": st.none(),
    "distribution": st.sampled_from([{}, {"torch_distributed": {"enabled": True}}]),
}
typed_arguments = st.sampled_from(sorted(arguments().values(), key=lambda fact: fact.name)).flatmap(
    lambda fact: st.tuples(st.just(fact.name), _of_kind[fact.kind])
)


@SLOW
@given(
    st.lists(typed_arguments, max_size=2).map(dict),
    st.sampled_from(["s3://b/p", None, {"train": {"s3_data": "s3://b/p", "input_mode": "FastFile"}}]),
)
def test_well_typed_arguments_give_a_request_that_botocore_takes_or_a_reason(some, fit):
    job = Job.parse({"region": "us-west-2", "kwargs": GOOD | some, "fit": fit})

    request = _compiled(job)

    if request is None:
        assert [p for p in lint(job, installed_catalogue()) if p.severity == "error"] or _refusals(job)
    else:
        assert ParamValidator().validate(request, INPUT).generate_report() == ""


def _refusals(job):
    with pytest.raises(InvalidInput) as refused:
        compile_job(job, installed_catalogue(), name="smd-1", source_uri="s3://b/c", output_uri="s3://b/")
    return refused.value.problems
