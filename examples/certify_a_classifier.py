"""Decide whether weights of your own classify all 60^12 sequences right; if not, see one that they do not."""

import jax
import numpy as np

from descentlab.papers.decision_lists import Preset, certify
from descentlab.papers.decision_lists.lists import draw_rule, permutation_matrix

rule = draw_rule(jax.random.key(0), Preset(L=60, n=12, M=6, sequences="all"))
lists, sizes = np.asarray(rule.lists), np.asarray(rule.sizes)

# The j-th entry of a list outweighs eleven copies of everything that comes after it.
W = np.zeros((60, 60))
for a in range(60):
    for j, token in enumerate(lists[a, : sizes[a]]):
        W[token, a] = np.log(12) * (sizes[a] - j)
V = np.asarray(permutation_matrix(rule))
print(certify(W, V, rule))

W[7] += 1.0  # now every query likes token 7 a little too much
print(certify(W, V, rule))
