// Package exact takes texts by their bytes. It refuses what encoding/json changes without an error (U+FFFD in place of
// bytes that are not UTF-8), writes empty lists as lists, and sums up texts so that no two lists of them are alike.
package exact

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"
)

// errText is the error of Codec.Marshal.
var errText = errors.New("a string in it is not UTF-8, which JSON would change; use []byte for bytes, or another Codec")

// Codec encodes and decodes values with encoding/json. Marshal fails for a value that JSON would change.
type Codec struct{}

// Marshal encodes a value.
func (Codec) Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && !JSON(v, text) {
		return nil, errText
	}
	return text, err
}

// Unmarshal decodes text into what v points to.
func (Codec) Unmarshal(text []byte, v any) error { return json.Unmarshal(text, v) }

// JSON reports whether text, which encoding/json made of the value, has the strings of the value. It has not where a
// string or a key of a map in it is not UTF-8. What a json.Marshaler returns counts as it is: U+FFFD in a
// json.RawMessage is the caller's own.
func JSON(value any, text []byte) bool {
	if !utf8.Valid(text) {
		return false // of a json.Marshaler, whose bytes are not checked
	}
	// The encoder escapes U+FFFD only where it is its own. The values are searched when there is such an escape.
	return !bytes.Contains(text, []byte(`\ufffd`)) || exact(reflect.ValueOf(value))
}

// exact searches a value that encoding/json has encoded: it ends.
func exact(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	if ok, done := marshals(v); done {
		return ok
	}
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return exact(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !exact(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if !exactKey(entry.Key()) || !exact(entry.Value()) {
				return false
			}
		}
	case reflect.Struct:
		return exactFields(v)
	}
	return true
}

// exactKey searches a key of a map. A string is written as it is, whatever its methods are; any other key as
// MarshalText has it, also where it has MarshalJSON too.
func exactKey(k reflect.Value) bool {
	if k.Kind() == reflect.String {
		return utf8.ValidString(k.String())
	}
	if k.Kind() == reflect.Pointer && k.IsNil() || !k.CanInterface() {
		return true
	}
	m, ok := k.Interface().(encoding.TextMarshaler)
	return !ok || exactText(m)
}

// exactFields searches the fields that are encoded.
func exactFields(v reflect.Value) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("json") != "-" && (f.IsExported() || f.Anonymous) && !exact(v.Field(i)) {
			return false
		}
	}
	return true
}

// marshals reports whether the value makes its text itself, and whether that is UTF-8.
func marshals(v reflect.Value) (ok, done bool) {
	if v.Kind() == reflect.Pointer && v.IsNil() || !v.CanInterface() {
		return false, false
	}
	if v.CanAddr() {
		v = v.Addr() // its methods are those of the value, and more; what a pointer points to is searched next
	}
	switch m := v.Interface().(type) {
	case json.Marshaler:
		return true, true
	case encoding.TextMarshaler:
		return exactText(m), true
	}
	return false, false
}

func exactText(m encoding.TextMarshaler) bool {
	text, err := m.MarshalText()
	return err == nil && utf8.Valid(text)
}
