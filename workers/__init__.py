"""One file is one process; no rules inside."""
import os

# numpy looks through tables here and multiplies no matrices: its threads would only spin at a start
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
