"""Compiles CUDA's device code with NVRTC, else with nvcc.

`build` tries `nvrtc`, then `nvcc`; `facts`, `diagnostics` and `refusals` make records of what these say, `host_needs`
and `absent_headers` tell which errors come of code that is not there. `inline` compiles texts for `load_inline`.
`planner` traces a workload's launches; without a workload `assumed` takes them from host code, `trials` finds arguments
of templates that compile, and `host_code` compares builds without what fails there, which `barer` makes. `instances`
leaves out most of too many, `wrong_kernels` those with errors, `wrong_parts` all else that has some.
"""
