"""NVIDIA's prices of options by Black and Scholes, with a polynomial for the normal distribution."""

import torch

CASES = [
    {"count": 2000},
    {"count": 4000000},
]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True}
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}  # the polynomial and approximate functions


def inputs(count):
    price = torch.rand(count, device="cuda") * 25 + 5
    strike = torch.rand(count, device="cuda") * 99 + 1
    return price, strike, torch.rand(count, device="cuda") * 9.75 + 0.25, 0.02, 0.30


def reference(price, strike, years, rate, volatility):
    scale = volatility * torch.sqrt(years)
    first = (torch.log(price / strike) + (rate + 0.5 * volatility**2) * years) / scale
    low, high = torch.special.ndtr(first - scale), torch.special.ndtr(first)
    later = strike * torch.exp(-rate * years)
    return price * high - later * low, later * (1 - low) - price * (1 - high)


def launch(module, price, strike, years, rate, volatility):
    call, put = torch.empty_like(price), torch.empty_like(price)
    arguments = (call, put, price, strike, years, rate, volatility, price.numel())
    module.BlackScholesGPU[-(-price.numel() // 256), 128](*arguments)
    return call, put
