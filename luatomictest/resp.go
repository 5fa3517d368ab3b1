package luatomictest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var errFraming = errors.New("luatomictest: not a RESP frame")

// readRequest reads one request: an array of bulk strings, or an inline line. It returns the arguments, and their
// bytes appended to buf.
func readRequest(r *bufio.Reader, buf []byte) (args []string, raw []byte, err error) {
	start := len(buf)
	buf, err = readLine(r, buf)
	if err != nil {
		return nil, buf, err
	}
	line := string(buf[start : len(buf)-2])
	if !strings.HasPrefix(line, "*") {
		return strings.Fields(line), buf, nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return nil, buf, errFraming
	}
	args = make([]string, 0, max(n, 0))
	for range n {
		head := len(buf)
		if buf, err = readLine(r, buf); err != nil {
			return nil, buf, err
		}
		body := len(buf)
		if buf, err = readBulk(r, buf, buf[head:body-2]); err != nil {
			return nil, buf, err
		}
		args = append(args, string(buf[body:len(buf)-2]))
	}
	return args, buf, nil
}

// readReply appends one whole reply to buf, nested values and RESP3 attributes included, and returns the type byte of
// the reply itself.
func readReply(r *bufio.Reader, buf []byte) (kind byte, raw []byte, err error) {
	start := len(buf)
	buf, err = readLine(r, buf)
	if err != nil {
		return 0, buf, err
	}
	kind, rest := buf[start], buf[start+1:len(buf)-2]
	switch kind {
	case '+', '-', ':', ',', '#', '_', '(':
		return kind, buf, nil
	case '$', '=', '!':
		if string(rest) == "-1" {
			return kind, buf, nil
		}
		buf, err = readBulk(r, buf, buf[start:len(buf)-2])
		return kind, buf, err
	case '*', '~', '>', '%', '|':
		n, convErr := strconv.Atoi(string(rest))
		if convErr != nil {
			return kind, buf, errFraming
		}
		return readElements(r, buf, kind, n)
	}
	return kind, buf, fmt.Errorf("%w: type byte %q", errFraming, kind)
}

// readElements appends the n elements that follow the head of an aggregate.
func readElements(r *bufio.Reader, buf []byte, kind byte, n int) (byte, []byte, error) {
	if kind == '%' || kind == '|' {
		n *= 2
	}
	var err error
	for range n {
		if _, buf, err = readReply(r, buf); err != nil {
			return kind, buf, err
		}
	}
	if kind == '|' {
		// An attribute and the value behind it are one frame.
		return readReply(r, buf)
	}
	return kind, buf, nil
}

// readLine appends one line with its CR LF.
func readLine(r *bufio.Reader, buf []byte) ([]byte, error) {
	start := len(buf)
	for {
		part, err := r.ReadSlice('\n')
		buf = append(buf, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return buf, err
		}
		if line := buf[start:]; len(line) < 3 || line[len(line)-2] != '\r' {
			return buf, errFraming
		}
		return buf, nil
	}
}

// readBulk appends the body that head ("$5") announces, with its CR LF.
func readBulk(r *bufio.Reader, buf, head []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(head[1:]))
	if err != nil || n < 0 {
		return buf, errFraming
	}
	start := len(buf)
	if room := n + 2 - (cap(buf) - start); room > 0 {
		buf = append(make([]byte, 0, 2*start+n+2), buf...)
	}
	buf = buf[:start+n+2]
	if _, err := io.ReadFull(r, buf[start:]); err != nil {
		return buf[:start], err
	}
	return buf, nil
}

// leadingWord returns the first element of an array or push of bulk strings, in lower case: the type of a pub/sub
// frame.
func leadingWord(raw []byte) string {
	lines := strings.SplitN(string(raw[:min(len(raw), 64)]), "\r\n", 4)
	if len(lines) < 4 || !strings.HasPrefix(lines[1], "$") {
		return ""
	}
	return strings.ToLower(lines[2])
}
