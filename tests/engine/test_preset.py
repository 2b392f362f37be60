"""Settings: what is refused, and in which words."""

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descentlab.cli.request import parse_settings
from descentlab.engine import Settings, parameter, preset
from descentlab.errors import SettingError


@preset
class Example(Settings):
    """One field of each kind."""

    n: int = parameter("a number", default=3, low=1, high=100)
    eta: float = parameter("a step", default=0.5, above=0)
    kind: str = parameter("a word", default="a", choices=("a", "b"))
    on: bool = parameter("a switch", default=True)
    steps: int = parameter("steps", default=10, low=1)

    def conflicts(self):
        if self.n > 50 and self.kind == "b":
            yield f"n takes a whole number <= 50 with kind=b, got n={self.n}."


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n", "-3", "n takes a whole number >= 1 and <= 100, got n=-3."),
        ("n", "abc", "n takes a whole number >= 1 and <= 100, got n=abc."),
        ("n", "2.5", "n takes a whole number >= 1 and <= 100, got n=2.5."),
        ("n", True, "n takes a whole number >= 1 and <= 100, got n=True."),
        ("eta", "0", "eta takes a number > 0, got eta=0.0."),
        ("eta", "nan", "eta takes a number > 0, got eta=nan."),
        ("eta", "inf", "eta takes a number > 0, got eta=inf."),
        ("kind", "c", "kind takes one of a, b, got kind=c."),
        ("on", "maybe", "on takes true or false, got on=maybe."),
        ("nosuch", "1", "nosuch is not a setting; there are n, eta, kind, on, steps."),
    ],
)
def test_bad_values_are_named_with_what_is_allowed(name: str, value: object, message: str):
    with pytest.raises(SettingError) as error:
        Example().replace({name: value})
    assert str(error.value) == message


def test_fields_that_do_not_go_together_are_refused():
    with pytest.raises(SettingError, match="<= 50 with kind=b, got n=60"):
        Example(n=60, kind="b")


@pytest.mark.parametrize("word", ["d", "=3", "d=", ""])
def test_a_setting_is_name_and_value(word: str):
    with pytest.raises(SettingError, match="NAME=VALUE"):
        parse_settings([word])


@given(st.integers(1, 50), st.floats(1e-300, 1e300), st.booleans(), st.sampled_from("ab"))
def test_what_is_printed_is_read_back(n: int, eta: float, on: bool, kind: str):
    one = Example(n=n, eta=eta, on=on, kind=kind)
    words = [f"{name}={value}" for name, value in one.settings().items()]
    assert Example().replace(parse_settings(words)) == one


def test_numbers_are_leaves_and_the_rest_is_compiled_in():
    leaves, structure = jax.tree.flatten(Example(eta=0.25, steps=7))
    assert leaves == [0.25, 7]
    assert structure == jax.tree.structure(Example(eta=0.75))
    assert structure != jax.tree.structure(Example(kind="b"))
    assert jax.tree.unflatten(structure, [0.25, 7]) == Example(eta=0.25, steps=7)
