"""Runs as netCDF files: whatever is written is read back, by us and by others."""

import io
import re
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from descentlab.store._netcdf import decode, encode

SIZES = {"seed": 2, "step": 3, "neuron": 4}
DTYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f4", "f8"]


def example() -> xr.Dataset:
    rng = np.random.default_rng(0)
    return xr.Dataset(
        {
            "loss": (("seed", "step"), rng.normal(size=(2, 3)), {"description": "the loss, ℓ"}),
            "single": (("seed", "step", "neuron"), rng.normal(size=(2, 3, 4)).astype("f4")),
            "turned": (("seed", "neuron"), rng.random((2, 4)) < 0.5, {"description": "a switch"}),
            "count": ("seed", np.array([2**62, -1]), {"unit": "steps", "level": 0.5, "order": 3}),
            "whole": ((), np.float64(1.5)),
            "last": ((), np.bool_(True)),
            "ends": ("seed", np.array([np.inf, np.nan])),
        },
        {"seed": [0, 1], "step": [0, 1, 5], "rate": ("seed", [0.1, 0.2], {"description": "a rate"})},
        {"run": "paper-0123456789abcdef", "about": '{"n": 1}', "seconds": 1.5},
    )


@st.composite
def datasets(draw: st.DrawFn) -> xr.Dataset:
    def series(dims: list[str]) -> tuple[list[str], np.ndarray, dict[str, Any]]:
        shape = tuple(SIZES[d] for d in dims)
        values = draw(arrays.arrays(draw(st.sampled_from(DTYPES)), shape))
        described = draw(st.dictionaries(st.just("description"), st.text("abc η", min_size=1), max_size=1))
        return dims, values, described

    some_dims = st.lists(st.sampled_from(list(SIZES)), unique=True)
    names = draw(st.lists(st.sampled_from("abcde"), unique=True))
    own = {name: series(draw(some_dims)) for name in names}
    indexed = draw(some_dims)
    return xr.Dataset(own, {d: np.arange(SIZES[d]) * 10 for d in indexed})


def same(found: xr.Dataset, expected: xr.Dataset) -> None:
    xr.testing.assert_identical(found, expected)
    assert set(found.coords) == set(expected.coords)
    assert {k: v.dtype for k, v in found.variables.items()} == {
        k: v.dtype for k, v in expected.variables.items()
    }


def test_a_run_is_read_back_as_it_was():
    same(decode(encode(example())), example())


@settings(deadline=None)
@given(datasets())
def test_whatever_holds_numbers_is_read_back_as_it_was(data: xr.Dataset):
    same(decode(encode(data)), data)


@pytest.mark.parametrize(
    "coordinate",
    [("step", [0, 1, 5], {"description": "training steps"}), ("step", [True, False, True])],
    ids=["described", "switches"],
)
def test_coordinates_of_dimensions_are_read_back_as_they_were(coordinate: Any):
    data = xr.Dataset({"loss": ("step", [1.0, 2.0, 3.0])}, {"step": coordinate})
    same(decode(encode(data)), data)


def test_an_empty_dataset_and_an_empty_dimension_are_read_back():
    same(decode(encode(xr.Dataset())), xr.Dataset())
    empty = xr.Dataset({"loss": (("seed", "step"), np.zeros((0, 2)))}, {"seed": np.arange(0), "step": [0, 1]})
    same(decode(encode(empty)), empty)


def test_the_same_run_is_the_same_bytes():
    assert encode(example()) == encode(example())


def test_others_open_the_file_and_see_the_same():
    with xr.open_dataset(io.BytesIO(encode(example())), engine="h5netcdf") as opened:
        seen = opened.load()
    # Only what we wrote knows that `rate` is a coordinate.
    assert set(seen.variables) == set(example().variables)
    for name, series in example().variables.items():
        assert seen[name].dims == series.dims, name
        assert seen[name].dtype == series.dtype, name
        np.testing.assert_array_equal(seen[name].values, series.values, err_msg=str(name))
    assert seen["loss"].attrs == example()["loss"].attrs
    assert seen["count"].attrs == example()["count"].attrs
    assert dict(seen.sizes) == {"seed": 2, "step": 3, "neuron": 4}
    assert "neuron" not in seen.coords
    assert {k: seen.attrs[k] for k in example().attrs} == example().attrs


@pytest.mark.parametrize(
    "values",
    [
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        np.array([1j, 2j]),
        np.array(["NaT"] * 2, "M8[s]"),
    ],
    ids=["words", "objects", "complex numbers", "dates"],
)
def test_what_is_no_number_is_refused(values: np.ndarray):
    kind = re.escape(str(values.dtype))
    with pytest.raises(TypeError, match=f"a run holds numbers, got {kind}"):
        encode(xr.Dataset({"label": ("seed", values)}))
    with pytest.raises(TypeError, match=f"a run holds numbers, got {kind} in seed"):
        encode(xr.Dataset({"loss": ("seed", [1.0, 2.0])}, {"seed": values}))


def test_a_refusal_names_what_is_no_number():
    with pytest.raises(TypeError, match="a run holds numbers, got <U1 in label"):
        encode(xr.Dataset({"loss": ("seed", [1.0, 2.0]), "label": ("seed", ["a", "b"])}))
