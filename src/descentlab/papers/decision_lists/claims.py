"""The claims of decision_lists: two theorems, an observation on uniform attention, and what is left open."""

import functools
import math
from functools import partial

import jax

from descentlab.judging import Assumption, Claim, Interval, Mutant, is_one_of
from descentlab.papers.decision_lists import measures
from descentlab.papers.decision_lists.runs import JOINT, UNIFORM, WINDOW
from descentlab.papers.decision_lists.setting import LAWS, Preset

claim = partial(Claim, presets=("tiny", "quick", "paper", "repeats"))

# ---------------------------------------------------------------- what is assumed


OWN_LAW = is_one_of("law", *LAWS)
LAYER = (is_one_of("optimizer", "gd"), is_one_of("attention", "softmax"))


@functools.lru_cache(maxsize=32)
def start_of_descent(p: Preset) -> tuple[float, float, float]:
    """c, epsilon and L_0 of the theorem on W and V, of one instance; c is nan where iteration finds none.

    Without noise in V_0 all instances agree for distinct tokens; each seed's own are in the verdict's notes.
    """
    from descentlab.papers import decision_lists as paper

    own = p.replace(WINDOW | {"step": "fixed", "noise": 0.0})
    task = jax.jit(paper.make_task, static_argnums=1)(jax.random.key(0), own)
    assert isinstance(task, paper.Task)
    return float(task.c), float(task.epsilon), float(paper.risk(task.start, task))


def has_scale(p: Preset) -> bool:
    """Whether iteration finds c = 10 n^2 L_0/delta + 4 epsilon n."""
    return p.law in LAWS and p.c == 0 and math.isfinite(start_of_descent(p)[0])


def condition_room(p: Preset) -> float:
    """epsilon (L_0 - 6 epsilon/n)^2 / (4 m L_0), 0 where there is no c."""
    if not has_scale(p):
        return 0.0
    _, epsilon, L_0 = start_of_descent(p)
    return measures.room(epsilon, L_0, p.n, p.M)


def slope_left(p: Preset) -> float:
    """L_0 - 6 epsilon/n, the bound on A; minus infinity where there is no c."""
    if not has_scale(p):
        return -math.inf
    _, epsilon, L_0 = start_of_descent(p)
    return L_0 - 6 * epsilon / p.n


THEOREM_W = (
    OWN_LAW,
    *LAYER,
    is_one_of("algorithm", "flow"),
    is_one_of("train", "attention"),
    is_one_of("start", "permutation"),
    Assumption("c = 4 n log(L)/delta", lambda p: p.c == 0),
    Assumption("L / M", lambda p: True, lambda p: p.L / p.M, exact=False),
)
THEOREM_WV = (
    OWN_LAW,
    *LAYER,
    Assumption("the population gradient is exact", lambda p: p.replace(WINDOW).loss == "exact"),
    Assumption("c is not given", lambda p: p.c == 0),
    Assumption("c = 10 n^2 L_0/delta + 4 epsilon n is found by iteration", has_scale),
    Assumption("L_0 - 6 epsilon/n > 0", lambda p: slope_left(p) > 0),
    Assumption("A^2 > 4 m L_0/epsilon for some A < L_0 - 6 epsilon/n", lambda p: condition_room(p) > 1),
    Assumption("epsilon (L_0 - 6 epsilon/n)^2 / (4 m L_0)", lambda p: True, condition_room, exact=False),
    Assumption("|V_0 - cP|_inf over epsilon/2", lambda p: p.noise <= 1, lambda p: p.noise),
)

# ---------------------------------------------------------------- mutants

TOTAL_ORDER = Mutant(
    "lists that put all tokens in one order",
    {"L": 4, "n": 3, "M": 4, "lists": "[[0],[0,1],[0,1,2],[0,1,2,3]]"},
)
UNIFORM_AGAIN = Mutant(
    "attention made uniform again",
    alter=lambda runs: {name: run.assign(final_W=0 * run["final_W"]) for name, run in runs.items()},
)


OTHER_PERMUTATION = Mutant(
    "another permutation",
    alter=lambda runs: {
        name: run.assign(permutation=run["permutation"].roll(query=1)) for name, run in runs.items()
    },
)


# ---------------------------------------------------------------- claims

ORDER = "The theorem gives an upper bound, so the logarithm of the slack is not negative."

CLAIMS = (
    claim(
        "flow_classifies_in_time",
        "Section C, result 1",
        "From W = 0 and V = cP gradient flow of W classifies all sequences by time 4M/(log(L) gamma).",
        measures.time_slack,
        Interval(0),
        assumes=THEOREM_W,
        mutants=(
            Mutant("sequences with repeats asked of a model that saw none",
                   {"law": "distinct", "sequences": "all"}),
        ),
        margin=ORDER,
    ),
    claim(
        "descent_classifies_in_window",
        "Section C, result 2",
        "Gradient descent on W and V from near cP with step 1/lambda_max meets a perfect classifier before "
        "its window begins, at step 2 m L_0/(A^2 eta).",
        measures.window_slack,
        Interval(0),
        runs={"run": WINDOW},
        assumes=THEOREM_WV,
        mutants=(Mutant("attention held uniform", {"train": "value", "steps": 20_000}),),
        presets=("quick", "paper", "repeats"),
        margin=ORDER,
    ),
    claim(
        "uniform_attention_learns_permutation",
        "Conclusion",
        "Uniform attention (W = 0) pushes V towards P, from zero and from small random values: in the end P "
        "is the permutation matrix nearest to V.",
        measures.learned_permutation,
        Interval(0.8),
        runs=UNIFORM,
        assumes=LAYER,
        mutants=(
            Mutant("sequences that hold every token", {"law": "distinct", "n": 8, "L": 8}),
            OTHER_PERMUTATION,
        ),
        margin="Four tokens in five: chance gives one in L, and a share of L tokens is known to 1/L only.",
    ),
    claim(
        "attention_is_needed",
        "Introduction; conclusion",
        "With W = 0 no V is perfect: some sequence has two labels, and all its positions share one output.",
        measures.disagreeing_pairs,
        Interval(1e-9),
        runs={"run": UNIFORM["zero"]},
        mutants=(TOTAL_ORDER,),
        margin="One pair of tokens with two labels in a sequence is enough; decided exactly for every seed.",
    ),
    claim(
        "joint_training_classifies",
        "Conclusion, the open question",
        "Gradient descent on W and V together, from small random values, ends in perfect classification, for "
        "small L, n and M of both laws.",
        measures.joint_success,
        Interval(0.9),
        runs=JOINT["random"],
        assumes=LAYER,
        mutants=(UNIFORM_AGAIN,),
        margin="One cell in ten may need more steps than a run of fixed length has.",
    ),
)  # fmt: skip
