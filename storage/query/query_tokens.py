"""The tokens of Lucene's classic query syntax."""

import re
from dataclasses import dataclass

from storage.query.node import refuse

# A character of a word that does not need a backslash at its beginning; further inside, - and + are
# ordinary too.
START = r"(?:[^\s\u3000+\-!():^\[\]\"{}~*?\\/]|\\.)"
INSIDE = r"(?:[^\s\u3000!():^\[\]\"{}~*?\\/]|\\.)"

TOKEN = re.compile(
    rf"""(?P<bare>[+\-!](?=[\s\u3000]))
    |(?P<and>AND(?!{INSIDE})|&&)
    |(?P<or>OR(?!{INSIDE})|\|\|)
    |(?P<not>NOT(?!{INSIDE})|!)
    |(?P<sign>[+\-():])
    |\^(?P<boost>[0-9]+(?:\.[0-9]+)?)
    |~(?P<tilde>[0-9]*(?:\.[0-9]+)?)
    |"(?P<phrase>(?:[^"\\]|\\.)*)"
    |/(?P<regexp>(?:[^/\\]|\\/|\\.)*)/
    |(?P<range>[\[{{]\s*(?P<low>{{end}})\s+(?:TO\s+)?(?P<high>{{end}})\s*[\]}}])
    |(?P<wildcard>(?:{START}|[*?])(?:{INSIDE}|[*?])*)
    |(?P<blank>[\s\u3000]+)""".replace(
        "{end}", r'(?:"(?:[^"\\]|\\.)*"|(?:[^\s"\]}}\\]|\\.)+)'.replace("}}", "}")
    ),
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is the sign itself, or and, or, not, word, wildcard, phrase, regexp, range, ~ or ^;
    `ends` are the two of a range, still escaped."""

    kind: str
    text: str
    ends: tuple[str, str] = ("", "")


def tokens_of(text: str, pointer: str) -> list[Token]:
    """All tokens, blanks left out; Invalid where nothing fits."""
    tokens = []
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            problem = f"'query_string' cannot be read at character {position}"
            raise refuse(problem, pointer)
        position = found.end()
        if found.lastgroup != "blank":
            tokens.append(_token(found))
    return tokens


def _token(found: re.Match[str]) -> Token:
    kind = found.lastgroup or ""
    text = found[0]
    if found["range"] is not None:
        return Token("range", text, (_unquoted(found["low"]), _unquoted(found["high"])))
    if kind == "wildcard":
        return Token("wildcard" if _has_wildcard(text) else "word", text)
    inside = {"boost": "^", "tilde": "~", "phrase": "phrase", "regexp": "regexp"}
    if kind in inside:
        return Token(
            inside[kind], found[kind].replace(r"\/", "/") if kind == "regexp" else found[kind]
        )
    # A sign before a blank marks nothing: it is a word, of which analysis leaves nothing.
    return Token({"sign": text, "bare": "word"}.get(kind, kind), text)


def _unquoted(end: str) -> str:
    return end[1:-1] if end.startswith('"') else end


def _has_wildcard(text: str) -> bool:
    return re.search(r"(?<!\\)(?:\\\\)*[*?]", text) is not None


def unescaped(text: str) -> str:
    """The text without its backslashes."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
