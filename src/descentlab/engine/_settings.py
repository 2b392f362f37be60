"""Presets: frozen dataclasses of a paper's letters, checked before anything is computed.

    @preset
    class Preset(Settings):
        n: int = parameter("training samples", default=20, low=1)
        eta: float = parameter("step size", default=1e-4, above=0)

A preset is also a JAX pytree. Real-valued fields and `steps` are its leaves, so a
compiled program serves every value of them; whole numbers, words and switches
decide shapes and code, and are part of what is compiled, unless a task carries them as arrays (`carrying`).

`Training` has the fields that most papers share. A subclass gives an inherited field another default by plain
assignment, `eta = 0.05`.
"""

import dataclasses
import inspect
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import optax

from descentlab.engine._optimizers import OPTIMIZERS, optimizer
from descentlab.errors import SettingError

Number = int | float
T = TypeVar("T", bound="Settings")

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def parameter(
    doc: str,
    *,
    default: Any,
    low: Number | None = None,
    high: Number | None = None,
    above: Number | None = None,
    below: Number | None = None,
    choices: Iterable[Any] = (),
) -> Any:
    """A field of a preset with its meaning and the values it takes (`above`, `below`: exclusive)."""
    bounds = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"doc": doc, "choices": tuple(choices), **bounds})


def allowed(f: dataclasses.Field) -> str:
    """What a field takes, in words.

    >>> from dataclasses import make_dataclass
    >>> allowed(fields(make_dataclass("P", [("n", int, parameter("samples", default=3, low=1))]))[0])
    'a whole number >= 1'
    """
    m = f.metadata
    if m.get("choices"):
        return "one of " + ", ".join(str(c) for c in m["choices"])
    if f.type is bool:
        return "true or false"
    kind = {int: "a whole number", float: "a number", str: "a word"}[f.type]
    signs = {"low": ">=", "above": ">", "high": "<=", "below": "<"}
    bounds = [f"{sign} {m[name]:g}" for name, sign in signs.items() if m.get(name) is not None]
    return " ".join([kind, " and ".join(bounds)]).strip()


@dataclass(frozen=True)
class Carried:
    """Stands for a setting that a task carries as an array: a program depends on no more of it than `key`."""

    key: Hashable = None


@dataclass(frozen=True)
class Settings:
    """The base of every preset: validation, `replace`, and the command line's NAME=VALUE."""

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, checked(f, getattr(self, f.name)))
        for complaint in self.conflicts():
            raise SettingError(complaint)

    def conflicts(self) -> Iterable[str]:
        """What is wrong with fields that are fine one by one."""
        return ()

    def implied(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fields that change along with others, unless they are given too."""
        return {}

    def foreign_code(self) -> str:
        """A fingerprint of the functions that the fields name as module:function."""
        return ""

    def replace(self: T, settings: Mapping[str, Any] | None = None, **more: Any) -> T:
        """This preset with other values in some fields.

        Words such as "1e-3" are read as numbers; a function is applied to the field's present value.
        """
        known = {f.name: f for f in fields(self)}
        changes = {**(settings or {}), **more}
        changes = {**self.implied(changes), **changes}
        for name in changes:
            if name not in known:
                raise SettingError(f"{name} is not a setting; there are {', '.join(known)}.")
        values = {name: v(getattr(self, name)) if callable(v) else v for name, v in changes.items()}
        return dataclasses.replace(self, **{name: parsed(known[name], v) for name, v in values.items()})

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if type(value) is Carried:
            raise AttributeError(f"the task carries {name}: a compiled program serves every {name}.")
        return value

    def carrying(self: T, fields: Mapping[str, Hashable]) -> T:
        """This preset as a compiled program knows it: it serves every value of these fields.

        Reading one of them raises, since the program does not know it. Each is given with what programs do
        depend on, such as the size of an array that holds it; None if that is nothing.
        """
        return self.unchecked(**{name: Carried(key) for name, key in fields.items()})

    def known(self, name: str) -> Any:
        """What a compiled program knows of a field: its value, or the key of one that the task carries."""
        value = vars(self)[name]
        return value.key if isinstance(value, Carried) else value

    def unchecked(self: T, **values: Any) -> T:
        """This preset with other values as they are: inside a compiled program there is nothing to check."""
        return _unchecked(type(self), {**vars(self), **values})

    def settings(self) -> dict[str, Any]:
        """The fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def explained(self) -> list[str]:
        """The fields with their values, meanings and what they take, a line each."""
        return [f"{f.name}={getattr(self, f.name)}: {f.metadata['doc']} ({allowed(f)})" for f in fields(self)]

    def derived(self) -> dict[str, float]:
        """The numbers that follow from the fields: the class's properties by name."""
        return {k: getattr(self, k) for k, v in vars(type(self)).items() if isinstance(v, property)}


def _unchecked(cls: type[T], values: Mapping[str, Any]) -> T:
    # Values may be tracers here: the checks of __post_init__ are for real ones only.
    p = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(p, name, value)
    return p


def parsed(f: dataclasses.Field, value: Any) -> Any:
    """The value a field holds when it is given as a word on the command line."""
    if not isinstance(value, str) or f.type is str:
        return value
    try:
        if f.type is bool:
            if value.lower() not in TRUE + FALSE:
                raise ValueError
            return value.lower() in TRUE
        return f.type(value)  # type: ignore[operator]
    except ValueError:
        raise SettingError(f"{f.name} takes {allowed(f)}, got {f.name}={value}.") from None


def checked(f: dataclasses.Field, value: Any) -> Any:
    """The value, of the field's own type and in its range; otherwise a SettingError."""
    m = f.metadata
    if f.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    fits = (
        type(value) is f.type
        and (not isinstance(value, float) or math.isfinite(value))
        and (not m.get("choices") or value in m["choices"])
        and (m.get("low") is None or value >= m["low"])
        and (m.get("high") is None or value <= m["high"])
        and (m.get("above") is None or value > m["above"])
        and (m.get("below") is None or value < m["below"])
    )
    if not fits:
        raise SettingError(f"{f.name} takes {allowed(f)}, got {f.name}={value}.")
    return value


@dataclass_transform(frozen_default=True, field_specifiers=(parameter,))
def preset(cls: type[T]) -> type[T]:
    """The class as a frozen dataclass and a pytree whose leaves are its real-valued fields and `steps`.

    What it assigns to an inherited field without a type is that field's default in it.
    """
    import jax

    own = list(inspect.get_annotations(cls))
    for base in fields(cls):
        if base.name in vars(cls) and base.name not in own:
            cls.__annotations__[base.name] = base.type
            setattr(cls, base.name, field(default=vars(cls)[base.name], metadata=base.metadata))
    cls = dataclass(frozen=True)(cls)
    # The paper's letters stand before the settings that papers share.
    known = {f.name: f for f in fields(cls)}
    cls.__dataclass_fields__ = {name: known[name] for name in [*own, *(n for n in known if n not in own)]}
    leaves = tuple(f.name for f in fields(cls) if f.type is float or f.name == "steps")
    rest = tuple(f.name for f in fields(cls) if f.name not in leaves)

    def flatten(p: T) -> tuple[tuple, tuple]:
        values = vars(p)
        return tuple(values[name] for name in leaves), tuple(values[name] for name in rest)

    def unflatten(static: tuple, values: tuple) -> T:
        return _unchecked(cls, dict(zip(rest + leaves, static + tuple(values), strict=True)))

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


@preset
class Training(Settings):
    """The settings that most papers share."""

    optimizer: str = parameter("the update rule", default="gd", choices=OPTIMIZERS)
    lam: float = parameter("optimizer=proximal: weight of the l1 norm", default=0.01, low=0)
    eta: float = parameter("step size", default=0.01, above=0)
    steps: int = parameter("training steps", default=10_000, low=1, high=10**12)
    precision: int = parameter("bits of a floating-point number", default=64, choices=(32, 64))

    def rule(self, **further: Any) -> optax.GradientTransformation:
        """The update rule that the fields name; `further` are arguments of `optimizer`."""
        return optimizer(self.optimizer, self.eta, lam=self.lam, **further)
