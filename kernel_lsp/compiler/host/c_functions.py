"""Tells which C functions of a library's undefined symbols serve host code: those that compute, print, wait and lock.

A C library has several names for most of its functions (`__mprotect`, `_IO_fopen`, `__read_chk`), so those that harm
cannot be listed. Names are those of ISO C and POSIX, of the Itanium C++ ABI and its personality routine, and of libgcc.
"""

import re

_TEXT = (
    r"w?mem(?:chr|cmp|cpy|mem|move|p?cpy|ccpy|rchr|set)|(?:str|stp|wcs|wcp|is|to)[a-z]\w*|__rawmemchr|bcmp|bzero"
    r"|explicit_bzero|ffsl{0,2}|swab|basename"
)
_CONVERSIONS = (
    r"(?:__isoc\d+_|__)?(?:str|wcs)to[a-z]\w*|ato(?:i|ll?|f)|mb[a-z]\w*|wc(?:tomb|rtomb|tob|type)\w*|btowc|l?labs|abs"
    r"|imaxabs|(?:l|ll|imax)?div|(?:__isoc\d+_)?v?sw?scanf"
)
_OUTPUT = (
    r"(?:__)?(?:v|o)?(?:f|s|sn|as)?w?printf(?:_chk)?|(?:__)?(?:sn|vsn|sw|vsw)printf(?:_chk)?|f?put(?:c|char|s|wc|ws)"
    r"(?:_unlocked)?|fwrite(?:_unlocked)?|fflush(?:_unlocked)?|fclose|ferror|clearerr|set(?:v|line)?buf(?:fer)?|perror"
    r"|std(?:in|out|err)|__assert\w*|__errno_location|__ctype_\w+"
)
_MEMORY = (
    r"malloc|calloc|realloc|reallocarray|free|cfree|aligned_alloc|posix_memalign|memalign|valloc|malloc_(?:trim"
    r"|usable_size)"
)
_CHANCE = r"s?rand(?:om)?(?:_r)?|s?[dejlmn]?rand48(?:_r)?|arc4random\w*|getrandom|getentropy|qsort(?:_r)?|bsearch"
_TIME = (
    r"time|clock|clock_(?:gettime|getres|nanosleep)|gettimeofday|timespec_get|difftime|mktime|timegm|(?:gm|local)time(?:_r)?"
    r"|(?:asc|c)time(?:_r)?|nanosleep|u?sleep|times|getrusage"
)
_LOCKS = (
    r"pthread_(?:mutex|cond|rwlock|spin|barrier)(?:attr)?_\w+|pthread_(?:once|self|equal|[gs]etspecific|key_\w+)"
    r"|__pthread_key_create|mtx_\w+|cnd_\w+|tss_\w+|call_once|thrd_(?:current|yield|sleep|equal)"
    r"|sem_(?:init|destroy|wait|trywait|timedwait|post|getvalue)"
)
_SYSTEM = (
    r"exit|abort|atexit|at_quick_exit|(?:secure_)?getenv|getpid|gettid|sysconf|getpagesize|get_nprocs(?:_conf)?|sched_yield"
    r"|sched_getcpu|getcpu|gethostname|uname|get(?:e?uid|e?gid)"
)
_COMPILER = (
    r"__cxa_\w+|_Unwind_Resume(?:_or_Rethrow)?|_Unwind_DeleteException|__gxx_personality_v0|__gcc_personality_v0"
    r"|__dynamic_cast|__gmon_start__|_ITM_\w+|_Jv_RegisterClasses|__stack_chk_(?:fail|guard)|__tls_get_addr|__dso_handle"
    r"|__libc_single_threaded|__cpu_\w+|__(?:mem|str|stp|wcs|wmem|explicit_bzero)\w*_chk|__atomic_\w+|__sync_\w+"
    r"|__(?:a|u)?(?:add|sub|mul|div|mod|divmod|neg|pow|powi|float|floatun|fix|fixuns|extend|trunc|popcount|clz|ctz|parity"
    r"|ffs|bswap|cmp|ashl|ashr|lshr)[bhsdtqx][a-z]{0,3}\d?"
)
_MATHEMATICS = (
    r"(?:__)?(?:a?(?:cos|sin|tan)h?(?:pi)?|atan2(?:pi)?|sincos(?:pi)?|exp(?:2|10|m1)?|pow10?|log(?:2|10|1p|b)?|ilogb|llogb|sqrt"
    r"|cbrt|r?hypot|pow[nr]?|rootn|erfc?|[tl]?gamma|f(?:abs|dim|mod|ma|max|min|rexp|maximum|minimum)|ldexp|modf|scalbl?n?|ceil"
    r"|floor|trunc|l{0,2}(?:round|rint)|roundeven|nearbyint|remainder|remquo|drem|copysign|nan|next(?:after|toward|up|down)"
    r"|significand|finite|isnan|isinf|fpclassify|issignaling|signbit|j[01n]|y[01n]|c(?:abs|arg|imag|real|proj|exp|log"
    r"|pow|sqrt|a?(?:cos|sin|tan)h?))(?:f|l|f\d+x?)?(?:_r|_finite)?|signgam|conj[fl]?"
)
_LIBRARIES = (
    r"cuda[A-Z]\w*|cu[A-Z]\w*|cu(?:blas|dnn|fft|rand|solver|sparse|tensor)\w*|nv(?:rtc|JitLink|PTXCompiler|tx|ml|shmem)\w*"
    r"|nccl\w*|cupti\w*|__(?:cuda|nv|fatbin)\w*|omp_get_\w+|_?Py\w+|THP\w+|(?:aoti_)?torch_\w+|__torch_\w+"
)
_USUAL = re.compile(
    "|".join(
        (
            *(_TEXT, _CONVERSIONS, _OUTPUT, _MEMORY, _CHANCE, _TIME, _LOCKS, _SYSTEM),
            *(_COMPILER, _MATHEMATICS, _LIBRARIES),
        )
    )
)


def serves_host_code(symbol: str) -> bool:
    """Return True if a C symbol is of a known library, or a function of C that host code of a kernel may need."""
    return _USUAL.fullmatch(symbol) is not None
