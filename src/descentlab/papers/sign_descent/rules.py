"""The optimisers that are compared."""

from typing import Any

import optax


def moves(p: Any) -> optax.GradientTransformation:
    """SignGD, Adam or gradient descent, by the fields of a preset."""
    return {
        "sign": optax.sign_sgd(p.eta),
        "gd": optax.sgd(p.eta),
        "adam": optax.adam(p.eta, p.beta1, p.beta2, p.epsilon),
    }[p.optimizer]
