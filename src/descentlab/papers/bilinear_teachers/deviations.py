"""Where bilinear_teachers departs from the paper, or fills a gap, and why."""

from descentlab.papers import Deviation

DEVIATIONS = (
    Deviation(
        "sizes not given",
        "d, M, the learning rate, the horizon, the noise, LeakyReLU's slope and the law of V* are not "
        "given: d = 10, M = 5, eta = 0.05, noise 0.1, slope 0.1, Gaussian V*. Sizes D and K and the six "
        "runs are the paper's.",
    ),
    Deviation(
        "the slope at zero",
        "At W_V = 0, where training starts, ReLU and LeakyReLU have no derivative, and with s'(0) = 0 "
        "nothing ever moves. slope_at_zero = 1 is our choice, the same for exact and online gradients.",
    ),
    Deviation(
        "exact gradients",
        "The theorem is on the population loss, so the claims are judged on its closed form, and the "
        "paper's own online descent is drawn beside it. Where it is exact, the run is that of the two "
        "numbers of Lemma D.2.",
    ),
    Deviation(
        "T*",
        "The theorem gives T* up to a constant. Here it is the first step with |S - S*|_F below half its "
        "start; other thresholds are in the notes of the verdicts.",
    ),
    Deviation(
        "the norm in item 1",
        "The poster prints |V*|_F in the numerator of item 1, the paper in the denominator; the latter is "
        "judged.",
    ),
    Deviation(
        "exponents in sizes",
        "Each is read in the direction of the theorem's regime: D from 36 times the preset's on, K at "
        "2^16 times the preset's D, |V*| and eta downwards. D, K and |V*| vary under gradient flow, the "
        "limit that eta <= O(1/(M D^{5/2})) asks for; eta varies under descent.",
    ),
    Deviation(
        "out of distribution",
        "The excess OOD loss is that of a large sample, for which noise in labels drops out; the paper's "
        "estimate on 100 samples with noise is recorded beside it. For `any` labels, the worst ones of "
        "the teacher's own size are taken, which Cauchy and Schwarz give.",
    ),
    Deviation(
        "the full student",
        "It is trained on the GCN teacher with ReLU, the smallest, and with twice the preset's step; what "
        "it has learned after some T* is judged. Positions are shown and compared in the basis of "
        "positions, P' W P.",
    ),
    Deviation(
        "MNIST",
        "How images are normalised, the optimisers, steps and batches are not known. Here pixels have mean 0 "
        "and variance 1 (preset pixels=unit: background 0), resized images are rounded to bytes, the CNN is "
        "trained by Adam, and the student by descent with fresh batches of 100 and a step of 0.05.",
    ),
)
