"""The doctor's self-test of compiled programs."""

import pytest

from descentlab.showing import doctor


def test_compiled_programs_agree_with_numpy():
    assert doctor.miscompilations() == []


def test_the_self_test_can_fail(monkeypatch: pytest.MonkeyPatch):
    reductions = doctor._reductions

    def off(P):
        found = reductions(P)
        compiled, expected = found["maximum"]
        return found | {"maximum": (lambda p: compiled(p) + 1e-3, expected)}

    monkeypatch.setattr(doctor, "_reductions", off)
    assert len(doctor.miscompilations(rows=(100,), columns=(3,))) == 2
