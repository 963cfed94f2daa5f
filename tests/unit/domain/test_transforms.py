import pytest

from airflow_smd.domain.transforms import transform_problems


@pytest.mark.parametrize(
    "transform",
    [
        {"kind": "tabular", "label_column": -1, "header": False, "dtype": "uint8", "delimiter": ";"},
        {"kind": "tabular", "label_column": None},
        {"kind": "tabular", "label_column": "y", "header": True, "classes": ["a", "b"]},
        {"kind": "copy", "keys": "prefix", "on_bad": "skip", "max_bad": 0},
        {"kind": "images", "size": 224, "encode": "raw", "class_from": "none"},
        {"kind": "function", "function": "pkg.mod:name", "arguments": {"a": 1}, "load": False},
    ],
)
def test_what_the_container_takes_has_no_problem(transform):
    assert transform_problems(transform, has_code=True) == []


@pytest.mark.parametrize(
    ("transform", "field", "said"),
    [
        pytest.param([], "transform", "mapping", id="a list"),
        pytest.param({"kind": "tabuler"}, "transform.kind", "'tabular'", id="misspelt kind"),
        pytest.param({"kind": ["copy"]}, "transform.kind", "Allowed", id="a list as kind"),
        pytest.param(
            {"kind": "tabular", "label_colum": 1},
            "transform.label_colum",
            "'label_column'",
            id="misspelt option",
        ),
        pytest.param({"kind": "tabular", "dtype": "float"}, "transform.dtype", "float32", id="unknown word"),
        pytest.param(
            {"kind": "tabular", "header": 1}, "transform.header", "bool", id="number for a truth value"
        ),
        pytest.param(
            {"kind": "tabular", "label_column": True}, "transform.label_column", "int", id="truth value"
        ),
        pytest.param(
            {"kind": "tabular", "label_column": "y"}, "transform.label_column", "header", id="no header"
        ),
        pytest.param(
            {"kind": "tabular", "delimiter": "::"}, "transform.delimiter", "one", id="two characters"
        ),
        pytest.param({"kind": "images", "size": 0}, "transform.size", "1 to", id="no pixels"),
        pytest.param({"kind": "images", "quality": 99}, "transform.quality", "95", id="quality too high"),
        pytest.param({"kind": "copy", "max_bad": -1}, "transform.max_bad", "0 to", id="negative quota"),
        pytest.param({"kind": "function", "function": "f"}, "transform.function", "module:", id="no module"),
        pytest.param({"kind": "function"}, "transform.function", "module:", id="no function"),
    ],
)
def test_each_mistake_names_its_option_and_what_is_allowed(transform, field, said):
    (problem,) = transform_problems(transform, has_code=True)

    assert (problem.field, said in problem.message) == (field, True)


def test_a_function_needs_its_code():
    (problem,) = transform_problems({"kind": "function", "function": "a:b"}, has_code=False)

    assert problem.field == "code_dir"
