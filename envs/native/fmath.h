/* fmath.h: functions that C libraries and GPUs compute with different last bits; here they are the same everywhere.

   Accuracy: within 4e-16 of the exact value for |x| up to 10,000 (tests/envs/test_fmath.py). */
#ifndef MF_FMATH_H
#define MF_FMATH_H

#include "contract.h"

/* Taylor series for |r| up to pi/4. */
MF_FN double mf_sin_small(double r) {
    const double z = r * r;
    double sum = -1.0 / 121645100408832000.0;
    sum = sum * z + 1.0 / 355687428096000.0;
    sum = sum * z - 1.0 / 1307674368000.0;
    sum = sum * z + 1.0 / 6227020800.0;
    sum = sum * z - 1.0 / 39916800.0;
    sum = sum * z + 1.0 / 362880.0;
    sum = sum * z - 1.0 / 5040.0;
    sum = sum * z + 1.0 / 120.0;
    sum = sum * z - 1.0 / 6.0;
    return r + r * z * sum;
}

MF_FN double mf_cos_small(double r) {
    const double z = r * r;
    double sum = 1.0 / 6402373705728000.0 * -1.0;
    sum = sum * z + 1.0 / 20922789888000.0;
    sum = sum * z - 1.0 / 87178291200.0;
    sum = sum * z + 1.0 / 479001600.0;
    sum = sum * z - 1.0 / 3628800.0;
    sum = sum * z + 1.0 / 40320.0;
    sum = sum * z - 1.0 / 720.0;
    sum = sum * z + 1.0 / 24.0;
    return 1.0 - 0.5 * z + z * z * sum;
}

/* Returns the sine of x + quarters * pi/2. */
MF_FN double mf_sin_turned(double x, int32_t quarters) {
    const double turns = x * 0.63661977236758134308;
    const int32_t k = (int32_t)(turns + (turns < 0 ? -0.5 : 0.5));
    /* pi/2 as a sum of three numbers; the first two have 33 bits, so that their products with k are exact */
    const double r = ((x - k * 1.57079632673412561417e+00) - k * 6.07710050630396597660e-11) - k * 2.02226624879595063154e-21;
    const int32_t part = (k + quarters) & 3;
    const double value = part & 1 ? mf_cos_small(r) : mf_sin_small(r);
    return part & 2 ? -value : value;
}

MF_FN double mf_sin(double x) { return mf_sin_turned(x, 0); }
MF_FN double mf_cos(double x) { return mf_sin_turned(x, 1); }

#endif
