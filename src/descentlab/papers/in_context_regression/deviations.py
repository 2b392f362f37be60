"""Where in_context_regression departs from the paper, or fills a gap."""

from descentlab.papers import Deviation

DEVIATIONS = (
    Deviation(
        "Exact loss",
        "The paper derives the loss where v = r = 0 (Lemma 5.1). Ours is exact for all entries of W_PV and "
        "W_KQ, with label noise, and under shifts of inputs, query and task. That no weights do better than "
        "the limit follows in one line from its odd and even parts.",
    ),
    Deviation(
        "Label noise",
        "The paper trains without noise. Here noise of variance tau^2 adds to tr Lambda in Gamma, which is "
        "derived, not printed; it is on the points' labels alone, and the error is against <w, x_query>. "
        "Claims of the theorems are out of regime with noise.",
    ),
    Deviation(
        "Diagonal Lambda",
        "Lambda is diagonal: loss, flow and the law of the start do not change under rotations.",
    ),
    Deviation(
        "Theta",
        "The paper takes any Theta with |Theta Theta'|_F = 1. Ours has Gaussian entries, is a multiple of "
        "the identity, or has rank one, then scaled; a seed is a Theta.",
    ),
    Deviation(
        "Bound on s",
        "s^2 |Gamma| sqrt(d) < 2 gates the theorems' claims, as printed in Theorem 4.1 to the best of our "
        "knowledge. The flow does not need it. By balance u = 0 only where U = 0, which is stationary, so u "
        "stays positive. In the eigenbasis of Lambda, U_ii' = u lambda_i^2 (1 - u gamma_i U_ii) then keeps "
        "U_ii >= 0, and u' = sum_i lambda_i^2 U_ii (1 - u gamma_i U_ii) >= 0 near zero. So no s > 0 leads to "
        "the saddle at zero; the weights stay bounded (|uU|_F = u^2), the loss is analytic, and every other "
        "stationary point with balance and u > 0 is the limit. The claim large_start_converges_too is ours.",
    ),
    Deviation(
        "Starts outside the blocks",
        "The theorem starts with v = r = 0, which the flow keeps. From Gaussian entries in all blocks the "
        "flow also ends at local minima with v and r along one eigenvector of Lambda, above the least loss: "
        "ours, and what every_start_reaches_the_minimum measures.",
    ),
    Deviation(
        "Numbers of statements",
        "Numbers of theorems, lemmas, assumptions and sections are those of the journal version to the best "
        "of our knowledge; the statement of Lemma 5.4 (a PL inequality) is tested by its consequence, "
        "exponential decay, without its constant.",
    ),
    Deviation(
        "Sizes",
        "The theorems have no experiment of their own. d = 20 and N = 40 of the preset `paper`, the spectrum "
        "i^-alpha, horizons and the factors of the shifts are ours.",
    ),
    Deviation(
        "Shifts",
        "Section 4.2 argues for arbitrary shifts. Ours are one of each: all w along the least variance, "
        "query variances reversed and four times as large, and inputs c times as large.",
    ),
    Deviation(
        "Not here",
        "Prompts whose covariance is itself random (Section 4.3), and the experiments on large nonlinear "
        "transformers.",
    ),
)
