"""Runs a spectral pipeline on numpy, like those in signal processing and in the analysis of simulations.

It processes a noisy signal in forty windows: window function, FFT, log spectrum, smoothing. Every step allocates
arrays of one to five megabytes and frees them again, as numpy code does. With glibc's defaults malloc returns much
of that memory to the kernel each time, and page faults bring it back. heapwright finds settings that stop that.
The program is deterministic, needs no input, and takes about half a second.
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
