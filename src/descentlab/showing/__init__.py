"""What people see: the terminal, notebooks, figures for print, the report, the live page."""
