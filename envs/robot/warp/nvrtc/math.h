/* math.h: NVRTC knows sin, sqrt, isfinite and the like without a header; this one stands for the system's. */
