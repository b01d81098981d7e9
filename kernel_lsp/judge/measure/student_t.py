"""Compute quantiles of Student's t distribution, which the standard library lacks."""

import math
from functools import lru_cache
from statistics import NormalDist


@lru_cache(maxsize=1024)
def t_quantile(p: float, dof: int) -> float:
    """Return the p-quantile of Student's t distribution, to 1e-9 relative for p from 1e-6 to 1 - 1e-6.

    Raises:
        ValueError: p is not inside (0, 1) or dof is not positive.
    """
    if not 0 < p < 1 or dof < 1:
        raise ValueError(f"no t quantile for p = {p}, dof = {dof}")
    if p < 0.5:
        return -t_quantile(1 - p, dof)
    tail = 1 - p
    scale = math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(dof * math.pi)
    # On t > 0 the distribution function is concave and t's quantile lies above the normal one: Newton's steps
    # from there rise to the root without passing it.
    t = NormalDist().inv_cdf(p)
    for _ in range(200):
        density = scale * (1 + t * t / dof) ** (-(dof + 1) / 2)
        step = (_t_tail(t, dof) - tail) / density
        t += step
        if abs(step) <= 1e-12 * t:
            break
    return t


def _t_tail(t: float, dof: int) -> float:
    """Return P(T > t) for t >= 0."""
    x = dof / (dof + t * t)
    return _incomplete_beta(dof / 2, 0.5, x, t * t / (dof + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float, complement: float) -> float:
    """Return the regularised I_x(a, b); `complement` is 1 - x.

    Continued fraction, Lentz's method (Numerical Recipes 6.4).
    """
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, complement, x)
    if x == 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(complement))
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 500):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + factor * d)
            c = 1 + factor / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction / a
