"""Documents and stored queries built to be expensive."""

import json
from collections.abc import Iterable
from typing import Any

LONG = 100_000
"""Characters of a text, or elements of a list, that a hostile document may well have."""


def document() -> dict[str, Any]:
    """Long lists, long texts that differ in their last character, deep and wide objects."""
    return {
        "event_type": "CREATE",
        "numbers": list(range(LONG)),
        # Of the same length and different objects, so that to compare them takes their length.
        "texts": ["ä" + "x" * (LONG // 10) + str(n % 10) for n in range(100)],
        "one": "ä" + "x" * LONG + "1",
        "two": "ä" + "x" * LONG + "2",
        "same": "".join(["ä" + "x" * LONG, "1"]),
        "words": " ".join(f"w{n}" for n in range(LONG // 10)),
        "ab": ["".join("ab"[(n >> bit) & 1] for bit in range(13)) * 600 for n in range(50)],
        "wide": {f"k{n}": n for n in range(LONG // 10)},
        "deep": _deep(300),
        "pairs": [{"a": [n], "b": [n]} for n in range(LONG // 100)],
    }


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value, {"d": value}] if depth < 20 else [value]
    return value


def _piped(first: str, part: str, times: int, last: str = "@") -> str:
    return "|".join([first, *[part] * times, last])


JMESPATH = [
    _piped("@", "[@,@]", 40),
    _piped("@", "[@,@][]", 40),
    _piped("@", "[@,@]", 40, "to_string(@)"),
    _piped("@", "[@,@]", 30, "@[0] == @[1]"),
    _piped("@", "{a: @, b: @}", 30, "@.a == @.b"),
    _piped("one", "join('', [@,@])", 40),
    _piped("@", "to_string([@,@])", 40),
    _piped("texts", "to_string(@)", 40),
    _piped("texts", "[@,@,@,@][]", 40, "sort(@)"),
    _piped("texts", "[@,@][]", 40, "map(&to_string(@), @)"),
    "numbers[?contains($, @)]".replace("$", "`[1,2,3]`"),
    "numbers[*].{a: @, b: @, c: @} | [?a == b && b == c && c == a] | map(&to_string(@), @)",
    "[numbers, numbers, numbers, numbers][] | sort(@) | reverse(@) | sort(@) | max_by(@, &@)",
    "@.[one, two, same] | map(&[@,@,@,@,@,@,@,@], @)[] | map(&[@,@,@,@,@,@,@,@], @)[]"
    " | map(&[@,@,@,@,@,@,@,@], @)[] | [?@ == @]",
    "{x: [one], y: same, z: numbers} | z[?`1`].{t: @} | [*] | length(@)",
    "pairs[?a == b] | [] | [*].[a, b][] | [?@ == `[1]`]",
    "[@][*].pairs[] | [?a == b].{s: to_string(@)}[?contains(s, 'nowhere')]",
    # The same comparison of two long texts, a thousand times.
    "[@,@,@,@,@,@,@,@,@,@] | [[],[@,@,@,@,@,@,@,@,@,@][],@][] | [*][] | [?one == same] | [?one == two]"
    " | [*].[one < two, two > same, contains(texts, one)]",
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?one == same && one == two]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?contains(texts, texts[9])]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?one < same]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].sort(texts)[0]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].sort_by(texts, &@)[0]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].max(texts)"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?starts_with(one, two)]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].keys(wide)"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].merge(wide, wide)"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].to_number(one)"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].reverse(one)"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[*].numbers[::-1]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?numbers == wide]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?contains(one, two)]"),
    _piped("[@,@,@,@,@,@,@,@,@,@]", "[@,@,@,@,@,@,@,@,@,@][]", 4, "[?deep == deep]"),
]

UNPARSED = [
    "(" * 4_000,
    "[" * 4_000,
    "!" * 4_090 + "a",
    "a" + ".a" * 2_000,
    "a" + "[0]" * 1_300,
    "a" + "[]" * 2_000,
    "a" + "[*]" * 1_300,
    "a" + "[?a" * 1_300,
    "a" + "||a" * 1_300,
    "a" + "&&a" * 1_300,
    "a" + "|a" * 2_000,
    "a" + "==a" * 1_300,
    "`" + "[" * 4_000 + "`",
    "`" + "9" * 4_090 + "`",
    "`" + "\\`" * 2_000 + "`",
    "'" + "\\'" * 2_000 + "'",
    '"' + "\\u00e4" * 650 + '"',
    "[" + "&a," * 1_300 + "&a]",
    "{" + "a:a," * 1_000 + "a:a}",
    "f(" * 1_300 + "@",
    "9" * 4_090,
    "[" + "9" * 4_000 + "]",
    "[::" + "9" * 4_000 + "]",
    " " * 4_090 + "a",
]
"""What takes long to read, if anything does."""


def _clauses(clause: dict[str, Any], many: int = 1000) -> dict[str, Any]:
    return {"bool": {"must": [clause] * many}}


def _any(clauses: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"bool": {"should": list(clauses)}}


ES_QUERIES = [
    _any({"wildcard": {"words": f"*x*{n}"}} for n in range(300)),
    _any({"fuzzy": {"words": {"value": f"w12{n}9", "fuzziness": 2}}} for n in range(300)),
    {"wildcard": {"ab.keyword": "*a" * 4_000 + "*q"}},
    {"wildcard": {"*": "*a" * 4_000 + "*q"}},
    {"fuzzy": {"ab.keyword": {"value": "ba" * 3_900, "fuzziness": 2}}},
    {"regexp": {"ab.keyword": "(.{1,100}){1,9}c"}},
    {"regexp": {"ab.keyword": "(.|a|.b){900}c"}},
    {"regexp": {"*": "(a|b)*a" + "(a|b)" * 100 + "c"}},
    _any({"regexp": {"ab.keyword": "(a|b)*a" + "(a|b)" * n + "c"}} for n in range(40)),
    {"match_phrase": {"words": {"query": " ".join(["w1 w2"] * 2_000), "slop": 1_000_000}}},
    {"match": {"words": {"query": " ".join(f"w{n}" for n in range(2_000)), "fuzziness": 2}}},
    {"terms": {"words": [f"x{n}" for n in range(1_700)]}},
    _any({"terms": {"*": [f"x{n}"]}} for n in range(300)),
    _any({"exists": {"field": f"*x{n}*"}} for n in range(300)),
    _any({"exists": {"field": "w*" + "i*d*e*" * n}} for n in range(60)),
    {"bool": {"must_not": [_clauses({"exists": {"field": "*z"}}, 300)], "must": []}},
    _clauses({"range": {"numbers": {"gte": -1}}}, 300),
    _any({"range": {"words": {"gt": f"x{n}"}}} for n in range(300)),
    {"query_string": {"query": " OR ".join(f"*x{n}*" for n in range(400))}},
    {"query_string": {"query": " OR ".join(f"w{n}~2" for n in range(400))}},
    {"simple_query_string": {"query": " | ".join(f"w1{n}0~2" for n in range(300))}},
    {"prefix": {"*": {"value": "w" * 4_000, "case_insensitive": True}}},
]
"""Each is a request that can be stored."""

ES_TEXTS = [json.dumps(query) for query in ES_QUERIES]
