package luaast

import (
	"fmt"
	"strings"
)

// Error is a syntax error. Redis would refuse the script with SCRIPT LOAD.
type Error struct {
	Pos     Pos
	Width   int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%d:%d: %s", e.Pos.Line, e.Pos.Col, e.Message) }

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokName
	tokKeyword
	tokNumber
	tokString
	tokSymbol
)

// token keeps its text for names, keywords and symbols, the value for strings.
type token struct {
	Span
	kind tokenKind
	text string
	num  float64
}

var keywords = map[string]bool{
	"and": true, "break": true, "do": true, "else": true, "elseif": true, "end": true, "false": true, "for": true,
	"function": true, "if": true, "in": true, "local": true, "nil": true, "not": true, "or": true, "repeat": true,
	"return": true, "then": true, "true": true, "until": true, "while": true,
}

// IsKeyword reports whether Lua keeps the word to itself.
func IsKeyword(word string) bool { return keywords[word] }

// lexer reads tokens. Errors travel as panics of *Error and are caught by Parse.
type lexer struct {
	src   string
	pos   Pos
	lines []Pos // where comments to the end of a line begin
}

// A shebang is legal on some servers only, changes what the script may do, and is refused under low memory.
const shebang = "a script has no shebang line: remove it"

func newLexer(src string) *lexer { return &lexer{src: src, pos: Pos{Line: 1, Col: 1}} }

func (l *lexer) fail(pos Pos, width int, format string, args ...any) {
	panic(&Error{pos, max(1, width), fmt.Sprintf(format, args...)})
}

// peek returns the byte n places ahead, 0 behind the end; done tells the end from a NUL byte.
func (l *lexer) peek(n int) byte {
	if i := l.pos.Off + n; i < len(l.src) {
		return l.src[i]
	}
	return 0
}

// nul reports a NUL byte n places ahead. Lua 5.1 asks strchr whether the next byte is one of a set, and so takes a NUL
// for any of them.
func (l *lexer) nul(n int) bool { return l.pos.Off+n < len(l.src) && l.src[l.pos.Off+n] == 0 }

func (l *lexer) done() bool { return l.pos.Off >= len(l.src) }

func (l *lexer) rest() string { return l.src[l.pos.Off:] }

// advance moves over n bytes of one line.
func (l *lexer) advance(n int) {
	l.pos.Off += n
	l.pos.Col += n
}

func isNewline(c byte) bool { return c == '\n' || c == '\r' }

// newline moves over one line break; \r\n and \n\r are one.
func (l *lexer) newline() {
	n := 1
	if c := l.peek(1); isNewline(c) && c != l.peek(0) {
		n = 2
	}
	l.pos = Pos{l.pos.Line + 1, 1, l.pos.Off + n}
}

// next skips space and comments and returns the next token.
func (l *lexer) next() token {
	l.blank()
	start := l.pos
	tok := token{}
	switch c := l.peek(0); {
	case l.done():
	case isAlpha(c):
		tok = l.word()
	case isDigit(c) || c == '.' && isDigit(l.peek(1)):
		tok = l.number()
	case c == '"' || c == '\'':
		tok = token{kind: tokString, text: l.quoted(c)}
	case c == '[' && l.bracket() >= 0:
		tok = token{kind: tokString, text: l.long(l.bracket(), start, "string")}
	default:
		tok = l.symbol()
	}
	tok.Span = Span{start, l.pos.Off}
	return tok
}

func (l *lexer) blank() {
	for !l.done() {
		switch c := l.peek(0); {
		case isNewline(c):
			l.newline()
		case c == ' ' || c == '\t' || c == '\v' || c == '\f':
			l.advance(1)
		case strings.HasPrefix(l.rest(), "--"):
			l.comment()
		default:
			return
		}
	}
}

func (l *lexer) comment() {
	start := l.pos
	l.advance(2)
	if l.peek(0) == '[' {
		if level := l.level(); level >= 0 {
			l.long(level, start, "comment")
			return
		}
	}
	l.lines = append(l.lines, start)
	for !l.done() && !isNewline(l.peek(0)) {
		l.advance(1)
	}
}

// level counts the = of a long bracket at the lexer's place; -1 when it is none.
func (l *lexer) level() int {
	n := 1
	for l.peek(n) == '=' {
		n++
	}
	if l.peek(n) == '[' {
		return n - 1
	}
	return -1
}

// bracket is level for code, where [= without a second [ is an error.
func (l *lexer) bracket() int {
	level := l.level()
	if level < 0 && l.peek(1) == '=' {
		l.fail(l.pos, 2, "invalid long string delimiter")
	}
	return level
}

// long reads [==[ text ]==].
func (l *lexer) long(level int, start Pos, what string) string {
	l.advance(level + 2)
	if !l.done() && isNewline(l.peek(0)) {
		l.newline()
	}
	end := "]" + strings.Repeat("=", level) + "]"
	var text strings.Builder
	for {
		switch rest := l.rest(); {
		case l.done():
			l.fail(start, 2, "unfinished long %s", what)
		case strings.HasPrefix(rest, end):
			l.advance(len(end))
			return text.String()
		case isNewline(rest[0]):
			l.newline()
			text.WriteByte('\n')
		default:
			text.WriteByte(rest[0])
			l.advance(1)
		}
	}
}

func (l *lexer) word() token {
	n := 1
	for isAlpha(l.peek(n)) || isDigit(l.peek(n)) {
		n++
	}
	text := l.rest()[:n]
	l.advance(n)
	if keywords[text] {
		return token{kind: tokKeyword, text: text}
	}
	return token{kind: tokName, text: text}
}

var symbols = []string{"...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")",
	"{", "}", "[", "]", ";", ":", ",", "."}

func (l *lexer) symbol() token {
	if n := l.dots(); n > 1 {
		l.advance(n)
		return token{kind: tokSymbol, text: "..."[:n]}
	}
	rest := l.rest()
	for _, s := range symbols {
		if strings.HasPrefix(rest, s) {
			l.advance(len(s))
			return token{kind: tokSymbol, text: s}
		}
	}
	l.fail(l.pos, 1, "unexpected symbol %q", rest[:1])
	return token{}
}

// dots counts the bytes of .. and ..., in which a NUL counts for a dot that is not the first.
func (l *lexer) dots() int {
	if l.peek(0) != '.' {
		return 0
	}
	n := 1
	for n < 3 && (l.peek(n) == '.' || l.nul(n)) {
		n++
	}
	return n
}

func isAlpha(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
