"""What clauses mean, as known answers: every engine and the evaluator must give the same."""

from typing import Any, NamedTuple

LONG = "word " * 2000

DOCUMENTS: dict[str, dict[str, Any]] = {
    "human": {
        "organism": "Homo sapiens",
        "tissue": {"name": "Brain-stem", "part": [{"code": 3}, {"code": 7.5}]},
        "title": ["single cell atlas", "of the brain"],
        "living": True,
        "cells": 8403,
    },
    "mouse": {
        "organism": "Mus musculus",
        "tissue": {"name": "liver"},
        "title": "the brain of the mouse",
        "living": False,
        "cells": -12.5,
    },
    "other": {
        "organism": "HOMO",
        "title": "don't panic: 3.14 of naïve Ünïcode 東京",
        "cells": "8403",
        "empty": "",
        "dash": "-",
        "nothing": None,
        "none": [],
        "object": {},
    },
    "bare": {},
    "long": {"title": LONG, "mixed": [1, "two", True], "numbers": [1, 2.0, 10**400]},
}

EVERY = " ".join(DOCUMENTS)


class Meaning(NamedTuple):
    """A query and the names of the documents that it matches."""

    query: dict[str, Any]
    names: str


def _field(clause: str, field: str, names: str, plain: Any = None, /, **more: Any) -> Meaning:
    return Meaning({clause: {field: more if plain is None else plain}}, names)


def _string(query: str, names: str, **more: Any) -> Meaning:
    return Meaning({"query_string": {"query": query, **more}}, names)


def _simple(query: str, names: str, **more: Any) -> Meaning:
    return Meaning({"simple_query_string": {"query": query, **more}}, names)


def _bool(names: str, **parts: Any) -> Meaning:
    return Meaning({"bool": parts}, names)


HOMO = {"match": {"organism": "homo"}}
BRAIN = {"match": {"title": "brain"}}
LIVING = {"term": {"living": True}}
NOBODY = {"term": {"nowhere": 1}}

WHOLE = (
    Meaning({}, EVERY),
    Meaning({"query": {"match_all": {}}}, EVERY),
    Meaning({"match_none": {}}, ""),
    Meaning({"ids": {"values": ["human.v", "mouse.v", "no.v"]}}, ""),
)

TERM_LEVEL = (
    _field("term", "organism", "", "Homo"),
    _field("term", "organism", "human other", "homo"),
    _field("term", "organism", "human other", value="HOMO", case_insensitive=True),
    _field("term", "organism.keyword", "human", "Homo sapiens"),
    _field("term", "organism.keyword", "", "homo sapiens"),
    _field("term", "organism.keyword", "human", value="homo SAPIENS", case_insensitive=True),
    _field("term", "cells", "human other", 8403),
    _field("term", "cells", "human other", "8403"),
    _field("term", "cells", "human", 8403.0),
    _field("term", "cells", "mouse", "-1.25e1"),
    _field("term", "cells", "", "many"),
    _field("term", "living", "human", True),
    _field("term", "living", "mouse", "false"),
    _field("term", "living", "", 1),
    _field("term", "tissue.part.code", "human", 7.5),
    _field("term", "tissue", "", "liver"),
    _field("term", "mixed", "long", "two"),
    _field("term", "mixed", "long", 1),
    _field("term", "mixed", "long", True),
    _field("term", "numbers", "long", 2),
    _field("term", "dash.keyword", "other", "-"),
    _field("term", "empty.keyword", "other", ""),
    _field("terms", "organism", "human mouse other", ["homo", "mus"]),
    _field("terms", "organism", "", []),
    _field("terms", "cells", "human mouse other", [-12.5, "8403", "x"]),
    _field("range", "cells", "human other", gte=1),
    _field("range", "cells", "mouse", lt=0),
    _field("range", "cells", "human mouse other", gte="-12.5", lte=8403),
    _field("range", "cells", "", gt=-12.5, lt=8403),
    _field("range", "cells", "other", gte="8", lt="9x"),
    _field("range", "organism", "human other", gte="h", lt="i"),
    _field("range", "organism", "mouse", gt="homo", lt="n"),
    _field("range", "organism", "human mouse", **{"from": "homo", "include_lower": False}),
    _field("range", "organism.keyword", "human other", gte="H", lt="I"),
    _field("range", "organism.keyword", "human mouse", gt="HOMO"),
    _field("range", "living", "human mouse", gte=False),
    _field("range", "living", "human", gt="false"),
    Meaning({"range": {"cells": {}}}, "human mouse other"),
    Meaning({"exists": {"field": "cells"}}, "human mouse other"),
    Meaning({"exists": {"field": "tissue"}}, "human mouse"),
    Meaning({"exists": {"field": "tissue.part"}}, "human"),
    Meaning({"exists": {"field": "tiss*"}}, "human mouse"),
    Meaning({"exists": {"field": "empty"}}, "other"),
    Meaning({"exists": {"field": "dash"}}, "other"),
    Meaning({"exists": {"field": "nothing"}}, ""),
    Meaning({"exists": {"field": "none"}}, ""),
    Meaning({"exists": {"field": "object"}}, ""),
    Meaning({"exists": {"field": "title"}}, "human mouse other long"),
    Meaning({"exists": {"field": "title.keyword"}}, "human mouse other"),
    _field("prefix", "organism", "human other", "ho"),
    _field("prefix", "organism", "", "Ho"),
    _field("prefix", "organism", "human other", value="HO", case_insensitive=True),
    _field("prefix", "organism.keyword", "human", "Homo "),
    _field("prefix", "cells", "other", "8"),
    _field("wildcard", "organism", "human", "s?p*s"),
    _field("wildcard", "organism", "human mouse other", "*"),
    _field("wildcard", "organism.keyword", "mouse", "M* musc*"),
    _field("wildcard", "organism", "", "H*"),
    _field("wildcard", "organism", "human other", value="H*", case_insensitive=True),
    _field("wildcard", "title.keyword", "", "\\*"),
    _field("wildcard", "empty.keyword", "other", ""),
    _field("wildcard", "organism", "human other", value="\\HOM*", case_insensitive=True),
    _field("regexp", "organism", "human other", "h.m."),
    _field("regexp", "organism", "", "om"),
    _field("regexp", "organism", "mouse", "mus(c.*)?"),
    _field("regexp", "organism.keyword", "human", 'H[a-o]{3}" sap"@'),
    _field("regexp", "organism", "human other", value="H[O]mo", case_insensitive=True),
    _field("regexp", "organism", "", "#"),
    _field("regexp", "organism", "human other", value="HO()mo", case_insensitive=True),
    _field("regexp", "organism", "human other", "h\\o[^\\x]o"),
    _field("regexp", "empty.keyword", "other", "()"),
    _field("fuzzy", "organism", "human", "sapeins"),
    _field("fuzzy", "organism", "", value="sapeins", transpositions=False, fuzziness=1),
    _field("fuzzy", "organism", "human", value="sapeins", transpositions=False),
    _field("fuzzy", "organism", "", value="zapiens", prefix_length=1),
    _field("fuzzy", "organism", "human other", value="hom", fuzziness="AUTO"),
    _field("fuzzy", "organism", "", value="ho", fuzziness="AUTO"),
)

FULL_TEXT = (
    _field("match", "organism", "human other", "HOMO nobody"),
    _field("match", "organism", "human", query="homo SAPIENS", operator="and"),
    _field("match", "organism.keyword", "human", "Homo sapiens"),
    _field("match", "organism.keyword", "", "Homo"),
    _field("match", "tissue.name", "human", "stem"),
    _field("match", "title", "other", "don't"),
    _field("match", "title", "", "don"),
    _field("match", "title", "other", "3.14"),
    _field("match", "title", "other", "NAÏVE"),
    _field("match", "title", "other", "京"),
    _field("match", "title", "", "!?"),
    _field("match", "title", EVERY, query="!?", zero_terms_query="all"),
    _field("match", "title", "human mouse", query="the brain cell", minimum_should_match=2),
    _field("match", "title", "human", query="the brain cell", minimum_should_match="100%"),
    _field("match", "title", "human mouse", query="the brain cell", minimum_should_match="-34%"),
    _field("match", "title", "", query="the brain", minimum_should_match=3),
    _field("match", "title", "human mouse", query="brian", fuzziness="AUTO"),
    _field("match", "cells", "human other", 8403),
    _field("match", "cells", "other", "8403 or so"),
    _field("match", "living", "human", True),
    _field("match_phrase", "title", "human mouse", "THE brain"),
    _field("match_phrase", "title", "", "brain the"),
    _field("match_phrase", "title", "human mouse", query="brain the", slop=2),
    _field("match_phrase", "title", "", "atlas of"),
    _field("match_phrase", "title", "human", query="atlas of", slop=100),
    _field("match_phrase", "title", "mouse", query="the the", slop=3),
    _field("match_phrase", "title", "", query="mouse mouse", slop=9),
    _field("match_phrase", "organism.keyword", "human", "Homo sapiens"),
    Meaning({"multi_match": {"query": "homo mouse"}}, "human mouse other"),
    Meaning({"multi_match": {"query": "homo", "fields": "title"}}, ""),
    Meaning({"multi_match": {"query": "brain", "fields": ["t*^2", "x"]}}, "human mouse"),
    Meaning({"multi_match": {"query": "brain mus", "operator": "and"}}, ""),
    Meaning({"multi_match": {"query": "HOMO", "fields": ["*.keyword"]}}, "other"),
    Meaning({"multi_match": {"query": "the brain", "type": "phrase"}}, "human mouse"),
    Meaning({"multi_match": {"query": 8403, "fields": ["cell*"]}}, "human other"),
)

COMPOUND = (
    _bool(EVERY),
    _bool("human", must=[HOMO, LIVING]),
    _bool("human", must=HOMO, filter=[LIVING]),
    _bool("human mouse other", should=[HOMO, BRAIN]),
    _bool("human", should=[HOMO, BRAIN], minimum_should_match=2),
    _bool("human", should=[HOMO, BRAIN, NOBODY], minimum_should_match="75%"),
    _bool("", should=[HOMO, BRAIN], minimum_should_match=3),
    _bool("human mouse other", should=[HOMO, BRAIN], minimum_should_match=0),
    _bool("human other", must=[HOMO], should=[BRAIN]),
    _bool("human", must=[HOMO], should=[BRAIN], minimum_should_match=1),
    _bool("mouse bare long", must_not=[HOMO]),
    _bool("", must_not=[HOMO], adjust_pure_negative=False),
    _bool("other", must=[HOMO], must_not=[LIVING]),
    _bool("human other", must=[{"bool": {"must": [HOMO]}}, {"match_all": {}}]),
    Meaning({"constant_score": {"filter": BRAIN, "boost": 2}}, "human mouse"),
    Meaning({"dis_max": {"queries": [HOMO, BRAIN], "tie_breaker": 0.5}}, "human mouse other"),
    Meaning(
        {"boosting": {"positive": BRAIN, "negative": HOMO, "negative_boost": 0.5}}, "human mouse"
    ),
)

STRINGS = (
    _string("homo", "human other"),
    _string("", ""),
    _string("homo AND brain", "human"),
    _string("homo && !brain", "other"),
    _string("homo brain", "human mouse other"),
    _string("homo brain", "", default_field="title", default_operator="AND"),
    _string("+homo brain", "human other"),
    _string("homo -brain", "other"),
    _string("NOT homo", "mouse bare long"),
    _string("organism:homo OR title:mouse", "human mouse other"),
    _string("organism:(mus OR homo)", "human mouse other"),
    _string('title:"the brain"', "human mouse"),
    _string('title:"brain the"~2', "human mouse"),
    _string("organism:HO*", "human other"),
    _string("organism.keyword:HO*", "other"),
    _string("organism:/H.MO/", "human other"),
    _string("organism:sapeins~", "human"),
    _string("organism:sapeins~1", "human"),
    _string("cells:[8000 TO *]", "human other"),
    _string("cells:{-12.5 TO 9000}", "human other"),
    _string("cells:>=8403", "human other"),
    _string("cells:<0", "mouse"),
    _string("_exists_:tissue", "human mouse"),
    _string("tissue.name:*", "human mouse"),
    _string("*:*", EVERY),
    _string("*", EVERY),
    _string("mouse^2 (atlas AND cell)^3", "human mouse"),
    _string("single atlas nobody", "human", default_field="title", minimum_should_match=2),
    _string(r"don\'t", "other"),
    _string("brain - mouse", "human mouse"),
    _simple("homo brain", "human mouse other"),
    _simple("homo +brain", "human"),
    _simple("homo + -brain", "other"),
    _simple('"the brain" | sapiens', "human mouse"),
    _simple('"brain the"~2', "human mouse", fields=["title"]),
    _simple("HO*", "human other", fields=["organism"]),
    _simple("sapeins~1", "human", fields=["organism"]),
    _simple("(mus | homo) + brain", "human mouse"),
    _simple('(mus | "', "mouse"),
    _simple("brain mouse", "mouse", default_operator="and", fields=["title"]),
    _simple("brain mouse", "mouse", minimum_should_match=2, fields=["title"]),
    _simple("-", ""),
    _simple("ho*", "", fields=["organism"], flags="NONE"),
)

MEANINGS = WHOLE + TERM_LEVEL + FULL_TEXT + COMPOUND + STRINGS


def identity(name: str) -> tuple[str, str]:
    """The uuid and version of a document of that name."""
    number = list(DOCUMENTS).index(name)
    return f"00000000-0000-4000-8000-{number:012x}", f"2026-01-01T00000{number}.000000Z"


def document(name: str) -> dict[str, Any]:
    """The document with what makes it a bundle's."""
    uuid, version = identity(name)
    return {"bundle_info": {"uuid": uuid, "version": version}, **DOCUMENTS[name]}
