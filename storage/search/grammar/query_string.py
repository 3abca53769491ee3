"""Parse query_string: Lucene's classic syntax.

Adjacent words are analysed together; AND, OR, NOT, + and - mark the clause before or after them
without precedence, as in Lucene's parser.
"""

import re
from dataclasses import dataclass, replace

from storage.errors import Invalid
from storage.search.grammar.clauses import (
    BoolClause,
    Clause,
    ExistsClause,
    Fuzziness,
    FuzzyClause,
    MatchAllClause,
    MatchClause,
    MatchNoneClause,
    MatchPhraseClause,
    QueryField,
    QueryFields,
    RangeBound,
    RangeClause,
    RegexpClause,
    WildcardClause,
)
from storage.search.grammar.leaf_clauses import check_regexp, has_no_words, parse_fields
from storage.search.grammar.parameters import (
    ClauseNode,
    make_query_error,
    parse_field,
    parse_fuzziness,
)
from storage.search.patterns import REGEXP_OPERATORS

# A character of a word that does not need a backslash at its beginning; further inside, - and + are
# ordinary too.
WORD_START = r"(?:[^\s\u3000+\-!():^\[\]\"{}~*?\\/]|\\.)"
WORD_INSIDE = r"(?:[^\s\u3000!():^\[\]\"{}~*?\\/]|\\.)"

TOKEN_PATTERN = re.compile(
    rf"""(?P<bare>[+\-!](?=[\s\u3000]))
    |(?P<and>AND(?!{WORD_INSIDE})|&&)
    |(?P<or>OR(?!{WORD_INSIDE})|\|\|)
    |(?P<not>NOT(?!{WORD_INSIDE})|!)
    |(?P<sign>[+\-():])
    |\^(?P<boost>[0-9]+(?:\.[0-9]+)?)
    |~(?P<tilde>[0-9]*(?:\.[0-9]+)?)
    |"(?P<phrase>(?:[^"\\]|\\.)*)"
    |/(?P<regexp>(?:[^/\\]|\\/|\\.)*)/
    |(?P<range>[\[{{]\s*(?P<low>{{end}})\s+(?:TO\s+)?(?P<high>{{end}})\s*[\]}}])
    |(?P<wildcard>(?:{WORD_START}|[*?])(?:{WORD_INSIDE}|[*?])*)
    |(?P<blank>[\s\u3000]+)""".replace(
        "{end}", r'(?:"(?:[^"\\]|\\.)*"|(?:[^\s"\]}}\\]|\\.)+)'.replace("}}", "}")
    ),
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class QueryToken:
    """One token of a query string.

    `kind` is the sign itself, or and, or, not, word, wildcard, phrase, regexp, range, ~ or ^;
    `ends` are the bounds of a range, still escaped.
    """

    kind: str
    text: str
    ends: tuple[str, str] = ("", "")


def tokenize(text: str, pointer: str) -> list[QueryToken]:
    """Split a query string into tokens, without blanks; Invalid where no token matches."""
    tokens = []
    position = 0
    while position < len(text):
        found = TOKEN_PATTERN.match(text, position)
        if found is None:
            problem = f"'query_string' cannot be read at character {position}"
            raise make_query_error(problem, pointer)
        position = found.end()
        if found.lastgroup != "blank":
            tokens.append(_make_token(found))
    return tokens


def _make_token(found: re.Match[str]) -> QueryToken:
    kind = found.lastgroup or ""
    text = found[0]
    if found["range"] is not None:
        return QueryToken(
            "range", text, (_strip_quotes(found["low"]), _strip_quotes(found["high"]))
        )
    if kind == "wildcard":
        return QueryToken("wildcard" if _has_wildcard(text) else "word", text)
    inside = {"boost": "^", "tilde": "~", "phrase": "phrase", "regexp": "regexp"}
    if kind in inside:
        return QueryToken(
            inside[kind], found[kind].replace(r"\/", "/") if kind == "regexp" else found[kind]
        )
    # A sign before a blank is a word, which analysis drops.
    return QueryToken({"sign": text, "bare": "word"}.get(kind, kind), text)


def _strip_quotes(end: str) -> str:
    return end[1:-1] if end.startswith('"') else end


def _has_wildcard(text: str) -> bool:
    return re.search(r"(?<!\\)(?:\\\\)*[*?]", text) is not None


def unescape_text(text: str) -> str:
    """Remove the backslashes of escapes."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class QueryStringOptions:
    """The parameters that apply to every clause of a query string."""

    pointer: str
    fields: QueryFields
    match_every: bool
    slop: int
    fuzziness: Fuzziness
    prefix_length: int
    transpositions: bool
    leading_wildcard: bool

    def syntax_error(self, problem: str) -> Invalid:
        """Return the error of a malformed query string."""
        return make_query_error(f"'query_string' cannot be read: {problem}", self.pointer)


def make_word_clauses(options: QueryStringOptions, fields: QueryFields, text: str) -> list[Clause]:
    """Make the clauses of adjacent words; none if analysis leaves no word."""
    plain = unescape_text(text)
    if has_no_words(fields, plain) and not any(field.pattern for field in fields):
        return []
    return [MatchClause(fields, plain, match_every=options.match_every)]


def make_word_clause(
    options: QueryStringOptions, fields: QueryFields, text: str, tilde: str | None
) -> Clause | None:
    """Make the clause of a word: a match, a fuzzy match or a range."""
    if tilde is not None:
        return _make_fuzzy_clause(options, fields, unescape_text(text), tilde)
    sign = text[:2] if text[:2] in (">=", "<=") else text[:1]
    if fields != options.fields and sign in (">", "<", ">=", "<=") and text != sign:
        bound = RangeBound(unescape_text(text[len(sign) :]), inclusive=sign.endswith("="))
        low, high = (bound, None) if sign[0] == ">" else (None, bound)
        return RangeClause(fields, low, high, folded=True)
    return next(iter(make_word_clauses(options, fields, text)), None)


def _make_fuzzy_clause(
    options: QueryStringOptions, fields: QueryFields, text: str, tilde: str
) -> Clause:
    fuzziness = parse_fuzziness(tilde) if tilde else options.fuzziness
    if fuzziness is None:
        raise options.syntax_error(f"'~{tilde}' is no number of edits")
    return FuzzyClause(
        fields, text, fuzziness, options.prefix_length, options.transpositions, folded=True
    )


def make_phrase_clause(
    options: QueryStringOptions, fields: QueryFields, text: str, tilde: str | None
) -> Clause | None:
    """Make a phrase clause; `~` sets its slop."""
    if tilde and not tilde.isdecimal():
        raise options.syntax_error(f"'~{tilde}' is no number of moves")
    plain = unescape_text(text)
    if has_no_words(fields, plain) and not any(field.pattern for field in fields):
        return None
    return MatchPhraseClause(fields, plain, int(tilde[:9]) if tilde else options.slop)


def make_wildcard_clause(options: QueryStringOptions, fields: QueryFields, pattern: str) -> Clause:
    """Make the clause of a word with `*` or `?`; `*` alone matches any value."""
    if pattern == "*":
        return MatchAllClause() if fields == (QueryField("*", True),) else ExistsClause(fields)
    if pattern[0] in "*?" and not options.leading_wildcard:
        raise options.syntax_error("'*' or '?' is not allowed as first character")
    return WildcardClause(fields, pattern, folded=True)


def make_range_clause(fields: QueryFields, token: QueryToken) -> Clause:
    """Make the clause of a range in brackets or braces."""
    low, high = (unescape_text(end) for end in token.ends)
    lower = None if low == "*" else RangeBound(low, token.text[0] == "[")
    upper = None if high == "*" else RangeBound(high, token.text[-1] == "]")
    return (
        RangeClause(fields, lower, upper, folded=True) if lower or upper else ExistsClause(fields)
    )


QUERY_STRING_PARAMETERS = (
    "query",
    "default_field",
    "fields",
    "default_operator",
    "allow_leading_wildcard",
    "fuzziness",
    "fuzzy_prefix_length",
    "fuzzy_transpositions",
    "lenient",
    "minimum_should_match",
    "phrase_slop",
    "tie_breaker",
    "type",
    "auto_generate_synonyms_phrase_query",
    "enable_position_increments",
    "max_determinized_states",
)
MAX_NESTING = 18


def parse_query_string(node: ClauseNode) -> Clause:
    """Parse `query_string`."""
    node.check_parameters(*QUERY_STRING_PARAMETERS)
    node.number("tie_breaker", 0.0)
    node.choice("type", ("best_fields", "most_fields"), "best_fields")
    for name in ("lenient", "auto_generate_synonyms_phrase_query", "enable_position_increments"):
        node.flag(name, True)
    reader = _QueryStringParser(
        tokenize(node.scalar("query"), node.pointer_to("query")), _parse_options(node)
    )
    clause = reader.whole()
    return apply_minimum(clause, node.minimum())


def _parse_options(node: ClauseNode) -> QueryStringOptions:
    key = "fields" if node.has("fields") else "default_field"
    return QueryStringOptions(
        node.pointer_to("query"),
        parse_fields(node, key),
        node.choice("default_operator", ("or", "and"), "or") == "and",
        node.count("phrase_slop", 0),
        node.fuzziness() or Fuzziness(),
        node.count("fuzzy_prefix_length", 0),
        node.flag("fuzzy_transpositions", True),
        node.flag("allow_leading_wildcard", True),
    )


def apply_minimum(clause: Clause, minimum: str | None) -> Clause:
    """Set the minimum of a clause that has several optional parts."""
    if minimum is None:
        return clause
    one_field = isinstance(clause, MatchClause) and _is_single_field(clause.fields)
    if isinstance(clause, BoolClause) or (isinstance(clause, MatchClause) and one_field):
        return replace(clause, minimum_should_match=minimum)
    return clause


def _is_single_field(fields: QueryFields) -> bool:
    return len(fields) == 1 and not fields[0].pattern


@dataclass(slots=True)
class _MarkedClause:
    """A clause with its mark: must, should or must_not."""

    clause: Clause
    mark: str


class _QueryStringParser:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[QueryToken], options: QueryStringOptions) -> None:
        self.tokens = tokens
        self.options = options
        self.position = 0

    def kind(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.tokens[at].kind if at < len(self.tokens) else "end"

    def next(self) -> QueryToken:
        self.position += 1
        return self.tokens[self.position - 1]

    def take(self, kind: str) -> bool:
        if self.kind() != kind:
            return False
        self.position += 1
        return True

    def whole(self) -> Clause:
        if self.kind() == "end":
            return MatchNoneClause()
        clause = self.query(self.options.fields, 0)
        if self.kind() != "end":
            raise self.options.syntax_error(f"unexpected '{self.next().text}'")
        return clause or MatchNoneClause()

    def query(self, fields: QueryFields, depth: int) -> Clause | None:
        """Parse clauses up to the end or a closing parenthesis; None if analysis leaves no word."""
        if depth > MAX_NESTING:
            raise self.options.syntax_error(f"nested deeper than {MAX_NESTING}")
        parts: list[_MarkedClause] = []
        first = True
        while first or self.kind() not in ("end", ")"):
            conjunction = "" if first else self.conjunction()
            modifier = self.modifier()
            plain = not conjunction and not modifier
            for clause in self.clauses(fields, depth, several=plain):
                self.add(parts, clause, conjunction, modifier)
            first = False
        return _join_parts(parts)

    def conjunction(self) -> str:
        return self.next().kind if self.kind() in ("and", "or") else ""

    def modifier(self) -> str:
        return self.next().kind if self.kind() in ("+", "-", "not") else ""

    def add(
        self, parts: list[_MarkedClause], clause: Clause, conjunction: str, modifier: str
    ) -> None:
        """Mark the clause, and the one before it if the conjunction binds that, too."""
        every = self.options.match_every
        if parts and parts[-1].mark != "must_not":
            if conjunction == "and":
                parts[-1].mark = "must"
            elif conjunction == "or" and every:
                parts[-1].mark = "should"
        if modifier in ("-", "not"):
            mark = "must_not"
        elif every:
            mark = "should" if conjunction == "or" else "must"
        else:
            mark = "must" if modifier == "+" or conjunction == "and" else "should"
        parts.append(_MarkedClause(clause, mark))

    def clauses(self, fields: QueryFields, depth: int, *, several: bool) -> list[Clause]:
        """Parse the next clause; adjacent words make one, or one each for a single field."""
        if several and self.kind() == "word" and self.run() > 1:
            words = [self.next().text for _ in range(self.run())]
            texts = words if _is_single_field(fields) else [" ".join(words)]
            return [
                clause for text in texts for clause in make_word_clauses(self.options, fields, text)
            ]
        clause = self.clause(fields, depth)
        return [clause] if clause is not None else []

    def run(self) -> int:
        """Count the plain words that follow each other from here."""
        count = 0
        while self.kind(count) == "word" and self.kind(count + 1) not in (":", "~", "^"):
            count += 1
        return count

    def clause(self, fields: QueryFields, depth: int) -> Clause | None:
        if self.kind() in ("word", "wildcard") and self.kind(1) == ":":
            name, _ = self.next(), self.next()
            if (
                name.text == "*"
                and self.kind() == "wildcard"
                and self.tokens[self.position].text == "*"
            ):
                self.next()
                return MatchAllClause()
            if name.text == "_exists_":
                return self.exists()
            fields = (self.field(name),)
        if self.take("("):
            inner = self.query(fields, depth + 1)
            if not self.take(")"):
                raise self.options.syntax_error("a parenthesis is not closed")
            self.take("^")
            return inner
        return self.leaf(fields)

    def field(self, token: QueryToken) -> QueryField:
        return parse_field(unescape_text(token.text), self.options.pointer, pattern=True)

    def exists(self) -> Clause:
        if self.kind() not in ("word", "wildcard", "phrase"):
            raise self.options.syntax_error("'_exists_:' needs a field")
        return ExistsClause((self.field(self.next()),))

    def leaf(self, fields: QueryFields) -> Clause | None:
        kind = self.kind()
        if kind not in ("word", "wildcard", "phrase", "regexp", "range"):
            raise self.options.syntax_error(
                "unexpected end" if kind == "end" else f"unexpected '{kind}'"
            )
        token = self.next()
        tilde = self.next().text if self.kind() == "~" else None
        self.take("^")
        if kind == "word":
            return make_word_clause(self.options, fields, token.text, tilde)
        if kind == "phrase":
            return make_phrase_clause(self.options, fields, token.text, tilde)
        if kind == "regexp":
            clause = RegexpClause(
                fields, token.text, frozenset(REGEXP_OPERATORS.values()), folded=True
            )
            return check_regexp(clause, self.options.pointer)
        if kind == "range":
            return make_range_clause(fields, token)
        return make_wildcard_clause(self.options, fields, token.text)


def _join_parts(parts: list[_MarkedClause]) -> Clause | None:
    if not parts:
        return None
    if len(parts) == 1 and parts[0].mark != "must_not":
        return parts[0].clause
    marked = {mark: tuple(p.clause for p in parts if p.mark == mark) for mark in OCCURRENCE_MARKS}
    return BoolClause(must=marked["must"], should=marked["should"], must_not=marked["must_not"])


OCCURRENCE_MARKS = ("must", "should", "must_not")
