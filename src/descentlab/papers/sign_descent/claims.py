"""The claims of sign_descent: what the slides say of each stage, as statements a machine judges.

The statements are those of the slides of the authors' talk on the paper, and so are their steps; the sizes
behind those are not known, so each claim on a step says how it is read. `CLAIMS` is in the slides' order.

The claims are about SignGD, so another optimiser is out of their regime. The other switches of the preset
(start, label noise, trained blocks) do not gate: one drops them to see what breaks.
"""

from functools import partial

import numpy as np
import xarray as xr

from descentlab.judging import Assumption, Claim, Interval, Mutant, is_one_of, stretch
from descentlab.papers.sign_descent import measures
from descentlab.papers.sign_descent.runs import ADAM, ADAM_NEAR_ZERO, BASE, GD, LONG, SIGN, numbered
from descentlab.papers.sign_descent.stages import SLIDES, log_turning_ratio

STRONG_SIGNAL = Mutant("gradient descent on a strong signal", {"optimizer": "gd", "eta": 0.1, "signal": 3.0})
FROZEN_ATTENTION = Mutant("query and key frozen", {"train": "v"})
ANOTHER_NEURON = Mutant(
    "the votes of another neuron",
    alter=lambda runs: {
        k: v.assign(key_noise=v["key_noise"].roll(neuron=1), query_noise=v["query_noise"].roll(neuron=1))
        for k, v in runs.items()
    },
)


def regime(steps: int) -> tuple[Assumption, ...]:
    """What every claim assumes: SignGD, softmax, and a run that reaches the step that the claim looks at."""
    return (
        is_one_of("optimizer", "sign"),
        is_one_of("attention", "softmax"),
        Assumption(f"steps >= {steps}", lambda p: p.steps >= steps),
        Assumption("low signal-noise ratio", lambda p: p.snr < 1, lambda p: p.snr, exact=False),
    )


def with_decay(run: xr.Dataset, power: int) -> xr.Dataset:
    """The run with the log odds of s_21 replaced by -(t/60)^power: exp(-ct) for 1, exp(-ct^2) for 2."""
    log_s = -np.logaddexp(0.0, (run["step"].values / 60.0) ** power)
    planted = xr.DataArray(log_s, {"step": run["step"]}, ("step",))
    return run.assign(log_softmax_21=xr.zeros_like(run["log_softmax_21"]) + planted)


GD_RUNS = numbered("gd", GD)
LATE_RUNS = {"sign": SIGN | LONG} | {name: overrides | LONG for name, overrides in GD_RUNS.items()}
# Base runs with another optimiser in their place.
AS_SIGN = {"optimizer": "sign", "eta": 1e-4}
claim = partial(Claim, runs={"run": BASE}, presets=("tiny", "quick", "paper"))

CLAIMS = (
    claim(
        "value_noise_grows_linearly",
        "Stage I, item 1",
        "Mean value noise <v, y_i xi_i> stabilises into a linear relationship with t: exponent 1 from t = 2 "
        "on.",
        measures.value_noise_growth,
        Interval.around(1.0, 0.05),
        runs={"run": LONG},
        assumes=regime(30),
        mutants=(Mutant("gradient descent", GD[1.0]),),
        margin="5 % of the exponent: the gain over a decade of time is then right to 12 %.",
    ),
    claim(
        "other_products_stay_near_start",
        "Stage I, item 2",
        "At t = 2 query and key products have moved by less than half of their size at the start.",
        measures.largest_move,
        Interval(high=0.5),
        assumes=regime(2),
        mutants=(Mutant("ten times the step", {"eta": 1e-3}),),
        margin="Below one half, more of a product is start than movement.",
    ),
    claim(
        "query_key_noise_align",
        "Stage II, item 1 and Table 1",
        "At t = 10 query and key noise agree in sign for nearly all neurons and samples (slides: 1967 of "
        "2000).",
        measures.share_at("noise_alignment", SLIDES["T2"], ("neuron", "sample")),
        Interval(low=0.95),
        assumes=regime(10),
        mutants=(FROZEN_ATTENTION,),
        margin="At least 95 %, where chance gives 50 %.",
    ),
    claim(
        "alignment_is_balanced",
        "Stage II, item 2",
        "At t = 10 positive and negative query noise are about equal in number: on average over runs, the "
        "share of positive ones is within 5 points of one half.",
        measures.imbalance,
        Interval(high=0.05),
        assumes=regime(10),
        mutants=(Mutant("a start that knows the noise", {"start": "aligned"}),),
        margin="2000 independent signs would stay within 3 points of one half.",
    ),
    claim(
        "majority_vote_sets_signal_signs",
        "Stage III, items 1 and 2, read as the gradient has it",
        "In stage III each neuron's query signal moves with the sign of its key noise summed over samples; "
        "its key signal moves against the sign of its query noise summed over samples.",
        lambda run: measures.votes_followed(run, lambda noise: noise.sum("sample")),
        Interval(low=0.9),
        assumes=regime(40),
        mutants=(ANOTHER_NEURON, FROZEN_ATTENTION),
        margin="Nine steps in ten, where chance gives one in two; close votes may flip.",
    ),
    claim(
        "majority_vote_as_printed",
        "Stage III, items 1 and 2, as printed",
        "In stage III each neuron's query signal moves with the sign of sum_s <w_{K,s}, y_i xi_i>, a vote "
        "over neurons for any i; its key signal moves against the vote of the query noise.",
        lambda run: measures.votes_followed(run, lambda noise: noise.sum("neuron")),
        Interval(low=0.9),
        assumes=regime(40),
        mutants=(FROZEN_ATTENTION,),
        margin="As for the other reading.",
    ),
    claim(
        "query_and_key_signals_oppose",
        "Stage III, item 2",
        "At t = 40 query and key signal of a neuron have opposite signs.",
        measures.share_at("signals_oppose", SLIDES["T3"], ("neuron",)),
        Interval(low=0.9),
        assumes=regime(40),
        mutants=(FROZEN_ATTENTION,),
        margin="Nine neurons in ten, where chance gives one in two.",
    ),
    claim(
        "softmax_stays_half_before_stage_four",
        "Stage IV (softmax), item 1",
        "When stage III is over (95 % of query and key signals opposed) all softmax outputs are within 0.1 "
        "of 1/2.",
        measures.distance_from_half,
        Interval(high=0.1),
        assumes=regime(1),
        mutants=(Mutant("twice the noise", {"sigma_p": 3.0}),),
        margin="Between 0.4 and 0.6.",
    ),
    claim(
        "noise_softmax_leaves_first",
        "Stage IV (softmax), items 2 and 3",
        "s_21 leaves 1/2 (by 0.1) before s_11 does.",
        measures.noise_leaves_first,
        Interval(low=0.0),
        assumes=regime(1),
        mutants=(STRONG_SIGNAL,),
        margin="An order.",
    ),
    claim(
        "noise_softmax_decays_exponentially",
        "Stage IV (softmax), item 2",
        "Each s_{i,21} falls like exp(-ct) rather than like exp(-ct^2), from 0.4 on, wherever one stops "
        "looking.",
        measures.decay_of_s21,
        Interval(low=0.0),
        assumes=regime(1),
        mutants=(
            Mutant(
                "a Gaussian decay",
                alter=lambda runs: {k: with_decay(v, 2) for k, v in runs.items()},
            ),
        ),
        margin="Model selection: the log-likelihood gained per record.",
    ),
    claim(
        "key_noise_turns_before_query_noise",
        "Stage IV (alignment), items 2 to 4",
        "Negative key noise has turned to the sign of the query signal before negative query noise has "
        "(log of the ratio of times; slides: log 2).",
        log_turning_ratio,
        Interval(low=0.0),
        assumes=regime(1),
        mutants=(
            Mutant(
                "query and key exchanged",
                alter=lambda runs: {
                    k: v.rename(key_turned="query_turned", query_turned="key_turned") for k, v in runs.items()
                },
            ),
        ),
        margin="An order.",
    ),
    claim(
        "training_loss_decays_exponentially",
        "Theorem, training loss",
        "The training loss is exp(-c t^p) with p = 1, so that T = O(log 1/eps).",
        lambda run: stretch(run["log_training_loss"], log=True),
        Interval.around(1.0, 0.1),
        runs={"run": LONG},
        assumes=regime(500),
        mutants=(Mutant("gradient descent", GD[1.0]),),
        margin="One tenth, a third of the way to the next plausible law.",
    ),
    claim(
        "test_loss_stays_constant",
        "Theorem, test loss",
        "For any eps: the test loss is of constant order however small the training loss gets, "
        "L_D ~ (log 1/L_S)^p with p = 0, followed to ten times the slides' horizon.",
        measures.test_loss_growth,
        Interval.around(0.0, 0.1),
        runs={"run": LONG},
        assumes=regime(500),
        mutants=(STRONG_SIGNAL,),
        margin="A tenth: log(1/L_S) over a decade then changes L_D by at most a quarter.",
    ),
    claim(
        "value_memorises_noise",
        "Theorem, noise memorisation of value",
        "At the end the value signal is small against the value noise: |<v, mu>| / mean_i <v, y_i xi_i>.",
        measures.value_ratio,
        Interval(high=0.1),
        assumes=regime(500),
        mutants=(Mutant("a signal above the noise", {"signal": 10.0}),),
        margin="A tenth; both grow at the same rate, so the ratio is what o(1) can mean at fixed size.",
    ),
    claim(
        "attention_goes_to_noise",
        "Theorem, noise memorisation of query and key",
        "At the end both queries attend to the noise patch: s_11 and s_21 are o(1).",
        measures.attention_left,
        Interval(high=0.05),
        assumes=regime(500),
        mutants=(FROZEN_ATTENTION,),
        margin="A tenth of the start, 1/2.",
    ),
    claim(
        "adam_matches_sign_descent",
        "Adam vs SignGD, similarity",
        "Adam, with betas near 0 and by default, passes the stages within a factor of two of SignGD's times.",
        measures.largest_stage_gap,
        Interval(high=float(np.log(2))),
        runs={"sign": SIGN, "near_zero": ADAM_NEAR_ZERO, "default": ADAM},
        assumes=regime(1000),
        mutants=(Mutant("Adam with a tenth of the step", runs={"default": {"eta": 1e-5}}),),
        margin="A factor of two where the stages themselves lie factors of two to four apart.",
    ),
    claim(
        "adam_query_noise_stays_negative",
        "Adam vs SignGD, disparity",
        "Under Adam at least a tenth of the query noise keeps the sign opposite to the query signal to the "
        "end.",
        measures.negative_query_share,
        Interval(low=0.1),
        runs={"adam": ADAM},
        assumes=regime(1000),
        mutants=(Mutant("SignGD instead of Adam", {"optimizer": "sign"}),),
        margin="Half of it has that sign when stage II ends; under SignGD none at the end.",
    ),
    claim(
        "adam_loss_curve_differs",
        "Adam vs SignGD, disparity",
        "At the end the rates -log L_S / T of Adam and SignGD differ by more than a quarter.",
        measures.loss_curve_gap,
        Interval(low=float(np.log(1.25))),
        runs={"sign": SIGN, "adam": ADAM},
        assumes=regime(1000),
        mutants=(Mutant("Adam in its sign limit", runs={"adam": ADAM_NEAR_ZERO}),),
        margin="A quarter; with betas near 0 the rates agree within a few per cent.",
    ),
    claim(
        "sign_descent_trains_faster",
        "GD vs SignGD",
        "SignGD trains by a faster law: once below 0.1, its training loss exp(-c t^p) has a larger p than "
        "GD's, whatever GD's step (0.1 to 100).",
        measures.law_lead,
        Interval(low=0.0),
        runs=LATE_RUNS,
        assumes=regime(500),
        mutants=(Mutant("roles exchanged", runs={"sign": GD[1.0], **dict.fromkeys(GD_RUNS, AS_SIGN)}),),
        margin="An order.",
    ),
    claim(
        "gd_generalises_better",
        "GD vs SignGD",
        "At the same signal-noise ratio and training loss (0.1) GD's test loss is below SignGD's, whatever "
        "GD's step.",
        measures.test_lead,
        Interval(low=0.0),
        runs={"sign": SIGN, **GD_RUNS},
        assumes=regime(500),
        mutants=(Mutant("roles exchanged", runs={"sign": GD[1.0], **dict.fromkeys(GD_RUNS, AS_SIGN)}),),
        margin="An order.",
    ),
)
