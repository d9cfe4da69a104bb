"""The smallest useful part of a product of factors: rows in which every pair of values of two factors occurs together."""
import collections
import itertools


def pairwise(factors):
    """Rows (dicts) that cover all pairs of `factors` (name -> values). Greedy and deterministic."""
    names = list(factors)

    def pairs(row):
        """The pairs of values that a (partial) row holds, as ((name, value), (name, value))."""
        return set(itertools.combinations([(name, row[name]) for name in names if name in row], 2))

    uncovered = {
        ((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]
    }
    order = {pair: n for n, pair in enumerate(sorted(uncovered, key=repr))}
    seen = collections.Counter()
    rows = []
    while uncovered:
        row = dict(min(uncovered, key=order.get))
        for name in names:
            if name not in row:
                # the value that covers most of what is open; among equals the one whose pairs were seen least
                def worth(value):
                    candidates = pairs(row | {name: value})
                    return len(candidates & uncovered), -sum(seen[pair] for pair in candidates)

                row[name] = max(factors[name], key=worth)
        row = {name: row[name] for name in names}
        uncovered -= pairs(row)
        seen.update(pairs(row))
        rows.append(row)
    return rows


def product(factors):
    return [dict(zip(factors, values)) for values in itertools.product(*factors.values())]
