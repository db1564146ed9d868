"""Online evolutionary scheduling (ONES): predict what is left, weigh sizes, search, place.

Read `situation` first (the arrays that all the rest works on), then `rule` (a plain rule that needs no search), `score`
(what makes one plan better than another) and `evolve` (the search).
"""
