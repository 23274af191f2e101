"""A spectral pipeline on numpy, as signal processing and simulation post-processing have it.

Forty windows of a noisy signal: window, FFT, log spectrum, smoothing. Every step makes arrays of one to five
megabytes and drops them again, as numpy code does. With glibc's defaults much of that memory goes back to the
kernel each time and comes again as page faults; what heapwright finds here is how to stop that.
Deterministic, no input, about half a second.
"""

import numpy as np

WINDOWS, SAMPLES = 40, 300_000

signal = np.random.default_rng(1).standard_normal(SAMPLES)
window = np.hanning(SAMPLES)
smoother = np.ones(9) / 9
roughness = 0.0
for _ in range(WINDOWS):
    spectrum = np.abs(np.fft.rfft(signal * window))
    level = np.log1p(spectrum)
    smooth = np.convolve(level, smoother, "same")
    roughness += float((level - smooth).std())
    signal = np.roll(signal, 1000)
print(f"mean roughness {roughness / WINDOWS:.6f}")
