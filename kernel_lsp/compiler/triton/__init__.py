"""Compiles Triton and Gluon kernels for a named architecture, through a fake driver.

`build` runs a workload's launches and `precompile` compiles for several at once, for tensors moved by `misalignment`
too; `driver` receives each, `launchers` types what Triton passes, and `own_kernels` checks whose they are. `since` and
`renamed` say what this architecture or version lacks. Without a workload, `assumed` compiles with `parameter_types` and
`arguments` made up, so that what is `asserted` holds, in `forks`; `partial_module` executes only what that needs, with
placeholders from `unknown`. `ttgir_lines` reads Triton's intermediate code, `ptxas_words` what ptxas said.
"""
