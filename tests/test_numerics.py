"""The engine's guard and self-test."""

import pytest

from descentlab import numerics


@pytest.mark.parametrize("version", ["0.9.0", "0.9.2", "0.10.1", "0.10.2"])
def test_wrong_engines_are_refused(version: str):
    with pytest.raises(ImportError, match=f"jax {version} computes wrong numbers"):
        numerics.refuse_wrong_jax(version)


@pytest.mark.parametrize("version", ["0.8.3", "0.11.1", "0.12.0.1", None])
def test_sound_engines_pass(version: str | None):
    numerics.refuse_wrong_jax(version)


def test_compiled_programs_agree_with_numpy():
    assert numerics.miscompilations() == []


def test_the_self_test_can_fail(monkeypatch: pytest.MonkeyPatch):
    reductions = numerics._reductions

    def off(jnp, P):
        found = reductions(jnp, P)
        compiled, expected = found["maximum"]
        return found | {"maximum": (lambda p: compiled(p) + 1e-3, expected)}

    monkeypatch.setattr(numerics, "_reductions", off)
    assert len(numerics.miscompilations(rows=(100,), columns=(3,))) == 2
