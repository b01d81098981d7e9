"""Guarded dispatch: a variant that wins on a part of the cases is offered behind the simplest condition.

`predicate` finds the condition, `quantities` says what may be asked where it will stand, `python_text` and `cuda_text`
write the file, and `guarded` does all of this in a search. The judge decides on the file as a whole, as on any other.
"""
