"""The processes of a broker, a room for each kind of work; no rules inside."""
import os

# numpy looks through tables here and multiplies no matrices: its threads would only spin at a start
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
