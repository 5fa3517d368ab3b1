package keys

import (
	"errors"
	"fmt"
)

// ErrBadName reports that a name cannot be part of a key. Users know it as lua.ErrBadName.
var ErrBadName = errors.New("bad name")

// maxName bounds a name that becomes part of a key.
const maxName = 128

// CheckName returns an error unless value can be part of a key: 1 to 128 bytes, no braces (they would move the key to
// another cluster slot), no control characters. The error wraps ErrBadName, states the rule and quotes the value.
func CheckName(param, value string) error { return checkName(param, value, false) }

// CheckSecret is CheckName for a value that no error may show, such as a token.
func CheckSecret(param, value string) error { return checkName(param, value, true) }

func checkName(param, value string, secret bool) error {
	switch {
	case value == "":
		return fmt.Errorf("%w: %s is empty", ErrBadName, param)
	case len(value) > maxName:
		return fmt.Errorf("%w: %s has %d bytes, at most %d", ErrBadName, param, len(value), maxName)
	}
	for i := 0; i < len(value); i++ {
		what := ""
		switch b := value[i]; {
		case b == '{' || b == '}':
			what = "a brace, and braces choose the cluster slot"
		case b < 0x20 || b == 0x7f:
			what = "a control character"
		default:
			continue
		}
		if !secret {
			param = fmt.Sprintf("%s %q", param, value)
		}
		return fmt.Errorf("%w: %s holds %s", ErrBadName, param, what)
	}
	return nil
}
