"""Where attention_kernels departs from the paper, or fills a gap, and why."""

from descentlab.papers import Deviation

DEVIATIONS = (
    Deviation(
        "data and sizes",
        "The paper gives none for its theorems. Tokens and labels are Gaussian, W_h^O random directions of "
        "one length, the same for both heads of a couple; sizes are ours.",
    ),
    Deviation(
        "the starts of the theorems",
        "The theorems say that there is a start, not which. Theorem 1 is run from W^V = 0 and |W_h^O| = 10: "
        "as W^O grows, W^V fits the labels before W^Q and W^K have moved, and B stays. Theorem 2 is run "
        "from heads in couples of opposite values of the same size, where all outputs are 0 and J_Q is "
        "large against the residual. Generic starts are in the notes of the verdicts and in the figures.",
    ),
    Deviation(
        "beta",
        "Printed as sigma_min^2(W^O) sigma_min^2(B_0'). W^O has one column, so its only singular value is "
        "its length, sum_h |W_h^O|^2 when squared. The gradient in W^V gives min_h |W_h^O|^2 "
        "sigma_min^2(B), H times less when all heads have W_h^O of one length; that safe reading is judged "
        "for each kernel, and the printed one for both. Both take B_0, though B moves.",
    ),
    Deviation(
        "gamma",
        "A constant related to the start, says the theorem. Taken as sigma_min^2(J_Q) at the start, which "
        "is what descent in W^Q sees there.",
    ),
    Deviation(
        "the step size",
        "In units of 1/L with L the largest curvature of the loss at the start, up or down, in what is "
        "trained. eta L with the largest L of the whole run is in the notes.",
    ),
    Deviation(
        "softmax's descent inequality",
        "Printed with the gradient's norm, not its square. eta sum |grad f| is the length of the path, so "
        "the inequality compares a loss with a length, and its coefficient depends on the units of the "
        "labels: with labels and outputs divided by s the path is the same, and losses are divided by s^2. "
        "It is judged as printed in two units, and squared, as the descent lemma has it.",
    ),
    Deviation(
        "softmax's rate",
        "The theorem gives softmax no rate. The Gaussian one, with softmax's own J_Q, is judged too.",
    ),
    Deviation(
        "Gaussian beats softmax",
        "In some cases, says the paper. Judged at a generic start, and in a construction in which softmax "
        "cannot win: tokens end in one and heads in couples have values ±c(e_D + delta u'), of which "
        "softmax, whose rows sum to one, can only use delta u'. The map shows both kernels over delta and "
        "the size of queries and keys.",
    ),
    Deviation(
        "the best step",
        "Losses and gradients of kernels are compared at the best of five step sizes, a factor of four "
        "apart from 1/(4L) on, for each seed. A loss below a millionth of its start counts as solved: how "
        "far below says how long one trained.",
    ),
    Deviation(
        "local solutions",
        "Starts of W^Q with the same data, W^K and W^V, trained for as long as other runs with the step "
        "1/L, which is not tuned. Only starts that end solved, or where |grad f|/sqrt(2f) is below a "
        "hundredth of that at the start, count. Ends are the same solution if their outputs differ by less "
        "than a twentieth of |y|, along a chain of ends; so all that fit the labels are one. How the count "
        "moved since half of the steps is in the interval as drift.",
    ),
    Deviation(
        "Gaussian attention has a floor too",
        "Its entries lie in (0, 1], so with frozen values outputs lie between the sums of the negative and "
        "of the positive values. It is computed like softmax's.",
    ),
    Deviation(
        "eigenvalues of the Hessian",
        "The extreme ones, by Lanczos' method with 32 products (16 for transformers): from inside, so that "
        "both ends may be a little further out where there are thousands of weights.",
    ),
    Deviation(
        "real data",
        "The presets imdb_paper and pathfinder_paper follow the closest public set-up; imdb and pathfinder "
        "are short: 256 bytes, contours of six segments, patches of 2 x 2 pixels, 200 steps, no dropout. "
        "Learning rates are those of that set-up, 1e-4 for IMDb and 2e-4 for Pathfinder, common to both "
        "kernels, and ten times that.",
    ),
    Deviation(
        "landscapes",
        "The paper names neither the directions nor what smoother means. Here: random directions, each "
        "filter as long as its weights, and top eigenvectors of the Hessian in each block; roughness is the "
        "share of a plane's standard deviation that the best quadratic leaves over. The learning rate falls "
        "as in a run of 50,000 steps (500 in the short presets), so that the steps with either kernel are "
        "taken at over half of it.",
    ),
)
