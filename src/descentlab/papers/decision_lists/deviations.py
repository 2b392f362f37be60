"""Where decision_lists departs from the paper, or fills a gap, and why."""

from descentlab.papers import Deviation

DEVIATIONS = (
    Deviation(
        "delta and gamma",
        "The paper only says that they depend on the least probability of certain quantities. Several "
        "readings of each are computed from the law (preset fields delta and gamma); the module masses "
        "motivates them. delta is the preset's reading, and c follows from it. gamma is left open unless "
        "chosen: a verdict on the time bound must then hold for all of its readings.",
    ),
    Deviation(
        "the law of sequences",
        "The paper leaves it open. Distinct uniform tokens by default, since only there can the "
        "conditions of the theorem on W and V be met; independent tokens with any probabilities, and laws "
        "of one's own.",
    ),
    Deviation(
        "the generalised data distribution",
        "The introduction announces a generalisation of the data distribution for the theorem on W and V, "
        "but does not define it. The theorem is tested on the distribution that is defined.",
    ),
    Deviation(
        "m in the theorem on W and V",
        "The length of a list in the text, without saying of which: M, the longest, is used, which makes "
        "the conditions harder to meet and the window later.",
    ),
    Deviation(
        "c of the theorem on W and V",
        "c depends on L_0, which depends on c and on V_0: solved by iteration. Where this diverges, as "
        "for independent tokens, whose L_0 grows with c, the verdict is OUT_OF_REGIME and the run takes "
        "the c of the other theorem.",
    ),
    Deviation(
        "epsilon and A",
        "The theorem holds for some epsilon and A. epsilon = n L_0/18 unless given: the conditions ask "
        "for a large epsilon (L_0 - 6 epsilon/n)^2, which is largest there. A is as large as it may be, "
        "L_0 - 6 epsilon/n, so that the window begins as early as possible.",
    ),
    Deviation(
        "|V_0 - cP|_inf",
        "Read entry by entry; V_0 - cP is uniform up to epsilon/2 (preset field noise).",
    ),
    Deviation(
        "lambda_max",
        "Of the Hessian at the start, by Lanczos' method. It is recorded along the run too, and the "
        "verdict notes the largest product of it with eta up to the first perfect step.",
    ),
    Deviation(
        "random lists",
        "Lengths uniform on 1 to M, entries before the last drawn without repeats from the other tokens; "
        "the permutation uniform. A list with a repeated token means the same without its repeat, so it "
        "is refused.",
    ),
    Deviation(
        "right from the first instant",
        "Often the first velocity of W already has the right order, so that classification is perfect at "
        "every positive time. The certified time is then as small as rounding allows, such as 1e-15.",
    ),
    Deviation(
        "towards P",
        "The paper says that uniform attention pushes V in the direction of P, without a number. The "
        "claim is that P is the permutation matrix nearest to V. The cosine of V with P - 1/L and the "
        "share of columns whose largest entry is right are recorded beside it.",
    ),
    Deviation(
        "joint training",
        "An open question of the paper, judged over sizes, list lengths, laws and seeds, from small "
        "random values; from zero beside it. A run of 2000 steps with step size 10 may end too early.",
    ),
)
