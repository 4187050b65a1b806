import inspect

import tfplace
from tfplace import errors

PUBLIC = [
    "Constraints",
    "InfeasibleError",
    "OpGraph",
    "Placement",
    "Plan",
    "Problem",
    "TfplaceError",
    "Topology",
    "__version__",
    "actual_placement",
    "apply",
    "compare",
    "extract",
    "formulate",
    "keras",
    "largest_batch",
    "memory",
    "place",
    "plan",
    "rematerialize",
    "simulate",
    "split",
]


def test_public_surface_is_small_and_sorted():
    assert tfplace.__all__ == PUBLIC == sorted(PUBLIC)


def test_everything_public_is_there_and_documented():
    for name in PUBLIC:
        thing = getattr(tfplace, name)
        assert name == "__version__" or inspect.getdoc(thing), name


def test_every_error_is_a_tfplace_error():
    found = [e for e in vars(errors).values() if inspect.isclass(e) and issubclass(e, Exception)]
    assert len(found) > 8
    assert all(issubclass(e, tfplace.TfplaceError) for e in found)


def test_main_arguments_come_first_and_rare_ones_by_keyword():
    kinds = {n: p.kind for n, p in inspect.signature(tfplace.place).parameters.items()}
    by_position = [n for n, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert by_position == ["source", "topology"]
