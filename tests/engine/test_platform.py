"""The engine's guard."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from descentlab.engine import _platform as numerics


@pytest.mark.parametrize("version", ["0.9.0", "0.9.2", "0.10.1", "0.10.2"])
def test_wrong_engines_are_refused(version: str):
    with pytest.raises(ImportError, match=f"jax {version} computes wrong numbers"):
        numerics.refuse_wrong_jax(version)


@pytest.mark.parametrize("version", ["0.8.3", "0.11.1", "0.12.0.1", None])
def test_sound_engines_pass(version: str | None):
    numerics.refuse_wrong_jax(version)


def test_promotion_is_strict_in_every_test():
    with pytest.raises(ValueError, match="dtype_promotion"):
        jnp.ones(2, jnp.int32) + jnp.ones(2, jnp.float32)
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.ones(2) + jnp.ones((2, 2))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_programs_are_forgotten_when_there_are_too_many_and_work_again_after():
    compiled = []

    @jax.jit
    def double(x):
        compiled.append(x.shape)
        return 2 * x

    assert double(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert not numerics.make_room()
    double(jnp.ones(3))
    assert len(compiled) == 1
    assert numerics.make_room(most=0)
    assert double(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert len(compiled) == 2
