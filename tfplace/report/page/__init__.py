"""`report.html`: one self-contained page on a plan or a placement."""
