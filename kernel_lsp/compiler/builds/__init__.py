"""Records of builds, which any process may hold, and where they are kept.

`options` go in. `build` and `extension` are one compiler's outcome, `plan` the launches, `assumed` kernels that nothing
launches; `merging` makes one build of several, `built` is all of that for a candidate. `cache` keeps a compiler's
builds in a worker, `answers` whole candidates' by their `key`, so that no worker starts.
"""
