package luaast

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	decimal = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
	// A sign after p would end the numeral, as Lua 5.1 reads it.
	hexadecimal = regexp.MustCompile(`^0[xX][0-9a-fA-F]+([pP][0-9]+)?$`)
)

// number reads as far as Lua does, then asks whether the text is a numeral.
func (l *lexer) number() token {
	start, n := l.pos, 0
	for isDigit(l.peek(n)) || l.peek(n) == '.' {
		n++
	}
	if c := l.peek(n); c == 'e' || c == 'E' || l.nul(n) {
		n++
		if c := l.peek(n); c == '+' || c == '-' || l.nul(n) {
			n++
		}
	}
	for isAlpha(l.peek(n)) || isDigit(l.peek(n)) {
		n++
	}
	text, _, _ := strings.Cut(l.rest()[:n], "\x00") // C ends a text there
	l.advance(n)
	if !decimal.MatchString(text) && !hexadecimal.MatchString(text) {
		l.fail(start, n, "malformed number %s", text)
	}
	return token{kind: tokNumber, text: text, num: numeral(text)}
}

// numeral never fails: out of range is infinity, as strtod has it.
func numeral(text string) float64 {
	if len(text) > 1 && (text[1] == 'x' || text[1] == 'X') && !strings.ContainsAny(text, "pP") {
		text += "p0"
	}
	// The only error left is the range, and then v is infinite already.
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

var escapes = map[byte]byte{'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

func (l *lexer) quoted(quote byte) string {
	start := l.pos
	l.advance(1)
	var text strings.Builder
	for {
		c := l.peek(0)
		switch {
		case l.done() || isNewline(c):
			l.fail(start, l.pos.Off-start.Off, "unfinished string")
		case c == quote:
			l.advance(1)
			return text.String()
		case c == '\\':
			l.escape(start, &text)
		default:
			text.WriteByte(c)
			l.advance(1)
		}
	}
}

// escape reads one escape. An unknown one stands for its letter; there is no \x in Lua 5.1.
func (l *lexer) escape(start Pos, text *strings.Builder) {
	at := l.pos
	l.advance(1)
	c := l.peek(0)
	switch {
	case l.done():
		l.fail(start, 1, "unfinished string")
	case isNewline(c):
		l.newline()
		text.WriteByte('\n')
	case isDigit(c):
		code, n := 0, 0
		for n < 3 && isDigit(l.peek(n)) {
			code = code*10 + int(l.peek(n)-'0')
			n++
		}
		if code > 255 {
			l.fail(at, n+1, "escape sequence too large")
		}
		text.WriteByte(byte(code))
		l.advance(n)
	default:
		if e, ok := escapes[c]; ok {
			c = e
		}
		text.WriteByte(c)
		l.advance(1)
	}
}
