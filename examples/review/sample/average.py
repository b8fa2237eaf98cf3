def average(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)


def load(path):
    try:
        return [float(line) for line in open(path)]
    except Exception:
        return []
