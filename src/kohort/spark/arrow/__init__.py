"""Records of fetched batches as Arrow columns. Two fillers give the same result: one compiled by numba, one plain.

decoder    chooses the filler
columns    the columns, their limits, Arrow arrays from buffers
compiled   the filler that owns the buffers of the compiled code
kernel     the compiled code, without bounds checks
plain      the filler that needs only Python
"""
