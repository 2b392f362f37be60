"""From import to the verdict on a claim of your own, on a run of your own."""

from tempfile import TemporaryDirectory

from descentlab import Claim, around, judge, mean, run
from descentlab.papers.sign_descent import PRESETS

preset = PRESETS["tiny"].replace(signal=2.0, steps=400)
with TemporaryDirectory() as folder:
    result = run("sign_descent", preset, seeds=4, store=folder)
    result.plot("training_loss", "value_signal").savefig(f"{folder}/curves.png")

claim = Claim(
    name="value_signal_follows_its_step",
    cite="this example",
    statement="Every step of SignGD adds 2 eta |mu| to <v, mu>.",
    measure=lambda run: mean((run["value_signal"].isel(step=-1) - run["value_signal"].isel(step=0)).values),
    predicts=around(2 * preset.eta * preset.signal * preset.steps, 1e-9),
)
print(judge(claim, result.data))
print(
    f"signal-noise ratio {preset.snr:.3f}; final test loss per seed {result.data['test_loss'][:, -1].values}"
)
