"""Parse query_string: Lucene's classic syntax.

Adjacent words are analysed together; AND, OR, NOT, + and - mark the clause before or after them
without precedence, as in Lucene's parser.
"""

import re
from dataclasses import dataclass, replace

from storage.errors import Invalid
from storage.search.grammar import clauses
from storage.search.grammar.clauses import (
    BoolClause,
    Clause,
    ExistsClause,
    Fuzziness,
    MatchAllClause,
    MatchClause,
    MatchNoneClause,
    QueryField,
    QueryFields,
    RangeBound,
)
from storage.search.grammar.leaf_clauses import (
    check_regexp,
    drops_text,
    make_range,
    parse_fields,
)
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
        has_wildcard = re.search(r"(?<!\\)(?:\\\\)*[*?]", text)
        return QueryToken("wildcard" if has_wildcard else "word", text)
    inside = {"boost": "^", "tilde": "~", "phrase": "phrase", "regexp": "regexp"}
    if kind in inside:
        return QueryToken(
            inside[kind], found[kind].replace(r"\/", "/") if kind == "regexp" else found[kind]
        )
    # A sign before a blank is a word, which analysis drops.
    return QueryToken({"sign": text, "bare": "word"}.get(kind, kind), text)


def _strip_quotes(end: str) -> str:
    return end[1:-1] if end.startswith('"') else end


def unescape_text(text: str) -> str:
    """Remove the backslashes of escapes."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


QUERY_STRING_PARAMETERS = (
    "query default_field fields default_operator allow_leading_wildcard fuzziness"
    " fuzzy_prefix_length fuzzy_transpositions lenient minimum_should_match phrase_slop"
    " tie_breaker type auto_generate_synonyms_phrase_query enable_position_increments"
    " max_determinized_states"
)
MAX_NESTING = 18


def parse_query_string(node: ClauseNode) -> Clause:
    """Parse `query_string`."""
    node.check_parameters(QUERY_STRING_PARAMETERS)
    node.number("tie_breaker", 0.0)
    node.choice("type", ("best_fields", "most_fields"), "best_fields")
    for name in ("lenient", "auto_generate_synonyms_phrase_query", "enable_position_increments"):
        node.flag(name, True)
    pointer = node.pointer_to("query")
    reader = _QueryStringParser(
        tokenize(node.scalar("query"), pointer),
        pointer,
        parse_fields(node, "fields" if node.has("fields") else "default_field"),
        node.choice("default_operator", ("or", "and"), "or") == "and",
        node.count("phrase_slop", 0),
        node.fuzziness() or Fuzziness(),
        node.count("fuzzy_prefix_length", 0),
        node.flag("fuzzy_transpositions", True),
        node.flag("allow_leading_wildcard", True),
    )
    return apply_minimum(reader.whole(), node.minimum())


def apply_minimum(clause: Clause, minimum: str | None) -> Clause:
    """Set the minimum of a clause that has several optional parts."""
    if minimum and isinstance(clause, BoolClause):
        return replace(clause, minimum_should_match=minimum)
    if minimum and isinstance(clause, MatchClause) and _is_single_field(clause.fields):
        return replace(clause, minimum_should_match=minimum)
    return clause


def _is_single_field(fields: QueryFields) -> bool:
    return len(fields) == 1 and not fields[0].pattern


MarkedClause = tuple[str, Clause]
"""A clause with its mark before it: must, should or must_not."""


@dataclass(slots=True)
class _QueryStringParser:
    """Recursive descent over tokens; `pointer` and what follows apply to every clause."""

    tokens: list[QueryToken]
    pointer: str
    fields: QueryFields
    match_every: bool
    slop: int
    fuzziness: Fuzziness
    prefix_length: int
    transpositions: bool
    leading_wildcard: bool
    position: int = 0

    def syntax_error(self, problem: str) -> Invalid:
        return make_query_error(f"'query_string' cannot be read: {problem}", self.pointer)

    def kind(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.tokens[at].kind if at < len(self.tokens) else "end"

    def next(self) -> QueryToken:
        self.position += 1
        return self.tokens[self.position - 1]

    def take(self, *kinds: str) -> str:
        """Read the next token if it is of one of these kinds; return its kind or nothing."""
        return self.next().kind if self.kind() in kinds else ""

    def whole(self) -> Clause:
        if self.kind() == "end":
            return MatchNoneClause()
        clause = self.query(self.fields, 0)
        if self.kind() != "end":
            raise self.syntax_error(f"unexpected '{self.next().text}'")
        return clause or MatchNoneClause()

    def query(self, fields: QueryFields, depth: int) -> Clause | None:
        """Parse clauses up to the end or a closing parenthesis; None if analysis leaves no word."""
        if depth > MAX_NESTING:
            raise self.syntax_error(f"nested deeper than {MAX_NESTING}")
        parts: list[MarkedClause] = []
        conjunction = ""
        while True:
            modifier = self.take("+", "-", "not")
            plain = not conjunction and not modifier
            for clause in self.clauses(fields, depth, several=plain):
                self.add(parts, clause, conjunction, modifier)
            if self.kind() in ("end", ")"):
                return _join_parts(parts)
            conjunction = self.take("and", "or")

    def add(
        self, parts: list[MarkedClause], clause: Clause, conjunction: str, modifier: str
    ) -> None:
        """Mark the clause, and the one before it if the conjunction binds that, too."""
        if parts and parts[-1][0] != "must_not":
            if conjunction == "and":
                parts[-1] = "must", parts[-1][1]
            elif conjunction == "or" and self.match_every:
                parts[-1] = "should", parts[-1][1]
        if modifier in ("-", "not"):
            mark = "must_not"
        elif self.match_every:
            mark = "should" if conjunction == "or" else "must"
        else:
            mark = "must" if modifier == "+" or conjunction == "and" else "should"
        parts.append((mark, clause))

    def clauses(self, fields: QueryFields, depth: int, *, several: bool) -> list[Clause]:
        """Parse the next clause; adjacent words make one, or one each for a single field."""
        texts: list[str] = []
        if several and self.kind() == "word" and self.run() > 1:
            texts = [self.next().text for _ in range(self.run())]
        if texts and not _is_single_field(fields):
            texts = [" ".join(texts)]
        found = [self.match(fields, text) for text in texts] or [self.clause(fields, depth)]
        return [clause for clause in found if clause is not None]

    def run(self) -> int:
        """Count the plain words that follow each other from here."""
        count = 0
        while self.kind(count) == "word" and self.kind(count + 1) not in (":", "~", "^"):
            count += 1
        return count

    def clause(self, fields: QueryFields, depth: int) -> Clause | None:
        if self.kind() in ("word", "wildcard") and self.kind(1) == ":":
            name, _ = self.next(), self.next()
            if name.text == "*" and self.tokens[self.position :][:1] == [
                QueryToken("wildcard", "*")
            ]:
                self.next()
                return MatchAllClause()
            if name.text == "_exists_":
                if self.kind() not in ("word", "wildcard", "phrase"):
                    raise self.syntax_error("'_exists_:' needs a field")
                return ExistsClause((self.field(self.next()),))
            fields = (self.field(name),)
        if self.take("("):
            inner = self.query(fields, depth + 1)
            if not self.take(")"):
                raise self.syntax_error("a parenthesis is not closed")
            self.take("^")
            return inner
        return self.leaf(fields)

    def field(self, token: QueryToken) -> QueryField:
        return parse_field(unescape_text(token.text), self.pointer, pattern=True)

    def leaf(self, fields: QueryFields) -> Clause | None:
        kind = self.kind()
        if kind not in ("word", "wildcard", "phrase", "regexp", "range"):
            raise self.syntax_error("unexpected end" if kind == "end" else f"unexpected '{kind}'")
        token = self.next()
        tilde = self.next().text if self.kind() == "~" else None
        self.take("^")
        match kind:
            case "word":
                return self.word(fields, token.text, tilde)
            case "phrase":
                return self.phrase(fields, token.text, tilde)
            case "regexp":
                operators = frozenset(REGEXP_OPERATORS.values())
                clause = clauses.RegexpClause(fields, token.text, operators, folded=True)
                return check_regexp(clause, self.pointer)
            case "range":
                return _make_range_clause(fields, token)
        return self.wildcard(fields, token.text)

    def match(self, fields: QueryFields, text: str) -> Clause | None:
        """Match adjacent words; None if analysis leaves no word."""
        plain = unescape_text(text)
        if drops_text(fields, plain):
            return None
        return MatchClause(fields, plain, match_every=self.match_every)

    def word(self, fields: QueryFields, text: str, tilde: str | None) -> Clause | None:
        """Make the clause of a word: a match, a fuzzy match or a range."""
        if tilde is not None:
            fuzziness = parse_fuzziness(tilde) if tilde else self.fuzziness
            if fuzziness is None:
                raise self.syntax_error(f"'~{tilde}' is no number of edits")
            options = (fuzziness, self.prefix_length, self.transpositions)
            return clauses.FuzzyClause(fields, unescape_text(text), *options, folded=True)
        sign = text[:2] if text[:2] in (">=", "<=") else text[:1]
        if fields != self.fields and sign in (">", "<", ">=", "<=") and text != sign:
            bound = RangeBound(unescape_text(text[len(sign) :]), inclusive=sign.endswith("="))
            low, high = (bound, None) if sign[0] == ">" else (None, bound)
            return make_range(fields, low, high, folded=True)
        return self.match(fields, text)

    def phrase(self, fields: QueryFields, text: str, tilde: str | None) -> Clause | None:
        """Make a phrase clause; `~` sets its slop."""
        if tilde and not tilde.isdecimal():
            raise self.syntax_error(f"'~{tilde}' is no number of moves")
        plain = unescape_text(text)
        if drops_text(fields, plain):
            return None
        return clauses.MatchPhraseClause(fields, plain, int(tilde[:9]) if tilde else self.slop)

    def wildcard(self, fields: QueryFields, pattern: str) -> Clause:
        """Make the clause of a word with `*` or `?`; `*` alone matches any value."""
        if pattern == "*":
            return MatchAllClause() if fields == (QueryField("*", True),) else ExistsClause(fields)
        if pattern[0] in "*?" and not self.leading_wildcard:
            raise self.syntax_error("'*' or '?' is not allowed as first character")
        return clauses.WildcardClause(fields, pattern, folded=True)


def _make_range_clause(fields: QueryFields, token: QueryToken) -> Clause:
    """Make the clause of a range in brackets or braces."""
    low, high = (unescape_text(end) for end in token.ends)
    return make_range(
        fields,
        None if low == "*" else RangeBound(low, token.text[0] == "["),
        None if high == "*" else RangeBound(high, token.text[-1] == "]"),
        folded=True,
    )


def _join_parts(parts: list[MarkedClause]) -> Clause | None:
    if not parts:
        return None
    if len(parts) == 1 and parts[0][0] != "must_not":
        return parts[0][1]
    must, should, must_not = (
        tuple(clause for mark, clause in parts if mark == wanted)
        for wanted in ("must", "should", "must_not")
    )
    return BoolClause(must=must, should=should, must_not=must_not)
