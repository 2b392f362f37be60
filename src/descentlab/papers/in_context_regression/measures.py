"""What the claims of in_context_regression measure on recorded runs."""

LENGTHS = (5, 10, 20, 40, 80, 160, 320)  # test prompts
