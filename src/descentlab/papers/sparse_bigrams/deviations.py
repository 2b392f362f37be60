"""Where sparse_bigrams departs from the paper, or fills a gap, and why."""

from descentlab.papers import Deviation

DEVIATIONS = (
    Deviation(
        "P",
        "The paper's experiments do not say which. Random by default: each token has `successors` "
        "successors, all equally likely for uniform mu, the mean of couplings of mu with itself, so that "
        "P mu = mu holds exactly for any mu. Any P that keeps mu can be given.",
    ),
    Deviation(
        "the algorithm's details",
        "Steps are preconditioned (columns over mu_k) and projected (1'A, 1'V and V mu are kept). A "
        "proximal step pulls A to zero by eta lambda and then shifts its columns to sum to one. Rounding "
        "drops entries below half of the largest of their column. The last stage trains V with steps that "
        "fall like Q/t.",
    ),
    Deviation(
        "the end of stage 1",
        "The event max(a_V, a_A) >= switch/(QN) with the true signals, as T_1 is defined in Theorem 3.1; "
        "0.1 at N = 3, Q = 2, as in Figure 1.",
    ),
    Deviation(
        "seeds whose stage 1 goes the wrong way",
        "V and A with both signals negative fit as well, and with small batches noise may outweigh the "
        "first drift, 1/T: about one seed in twenty at T = 1000 and batch 64, one in four at T = 5000. "
        "Theorem 3.1 and the figures speak of what comes after stage 1. Claims about that leave these "
        "seeds out and count them in the note stage_one_failed.",
    ),
    Deviation(
        "samples of stage 1",
        "The theorem says poly(T). Counted with the batch at which the noise in A at the end of stage 1 "
        "is as large as its signal; steps at a fixed batch would grow like log T until stage 1 fails.",
    ),
    Deviation(
        "samples of stage 2",
        "Counted from the line at the end of stage 1, without the noise of stage 1, until both signals are "
        "one half and rounding gives Q up to a tenth. The theorem takes lambda above the noise; at such a "
        "batch log T is seen. Smaller batches are cheaper by far, but theirs grows like T^{1/2}: noise above "
        "lambda moves single entries by a walk of width eta noise^2/(2 lambda), and T such entries matter "
        "once the batch is below T^{1/2}. That does not contradict the theorem, which bounds the samples of "
        "one choice of batch from above; it is a claim of its own.",
    ),
    Deviation(
        "simulated batches",
        "Lemmas C.5 and C.6 are not at hand; the covariance is derived in the module noise, which says what "
        "is dropped. Off the support of Q entries of A have their exact variance; on it they are within a "
        "factor of two, and the noise of V along its signal is up to twice too large. Gaussian noise has no "
        "rare large jumps. Real batches do where a trigger is seen a few times a step: with N = 100 and "
        "batches of 256 such jumps pass the threshold of proximal steps, and simulated |Delta_A| is several "
        "times too small, while without the threshold the two agree.",
    ),
    Deviation(
        "size grids",
        "Run with simulated batches, whose cost does not grow with the batch; the setting noise divides "
        "it. lambda follows its bound a_V K_P/Q as N and Q grow.",
    ),
    Deviation(
        "the pre-trained model",
        "P^ = mu1' + rho (P - mu1') + sqrt(1 - rho^2) E with a random direction E of the same length: "
        "exactly the correlation rho asked for. Columns of P^ sum to one and it keeps mu, but entries may "
        "be negative.",
    ),
    Deviation(
        "softmax attention",
        "The same preconditioned gradient, taken to the logits; logit_rate is their step over that of V. "
        "It has stage 1 and 2 only: proximal steps and rounding are for linear attention.",
    ),
)
