"""Planted data with known truths, on which verdicts are calibrated: see ../calibrate_verdicts.py.

`planting.py` is what both parts share. `shaped.py` has the families that rules may be shaped on, `unseen.py`
families that are independent of the shaping: look at their results only after a rule is fixed.
"""
