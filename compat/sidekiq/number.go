package sidekiq

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// ErrNumber reports that JSON cannot hold a number (NaN, the infinities) or that Ruby would read it as infinite.
var ErrNumber = errors.New("sidekiq: not a number that JSON can hold")

// appendFloat writes a number as Ruby's generator does, so that it is read as a Float again: it always has a decimal
// point or an exponent. Ruby's own form changes to an exponent below 0.0001, and from 1e15 on, but from 1e16 on where
// 17 digits leave one behind the point. The generator of Sidekiq 8 changes later and writes the exponent differently.
// In between they agree.
func appendFloat(to []byte, x float64, v Version) ([]byte, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return to, ErrNumber
	}
	if math.Signbit(x) {
		to = append(to, '-')
		x = -x
	}
	if x == 0 {
		return append(to, "0.0"...), nil
	}
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], x, 'e', -1, 64)
	mark := bytes.IndexByte(text, 'e')
	exp, err := strconv.Atoi(string(text[mark+1:]))
	if err != nil {
		return to, err
	}
	digits := append(make([]byte, 0, 20), text[0])
	if mark > 1 {
		digits = append(digits, text[2:mark]...)
	}
	if v >= V8 {
		last := exp - len(digits) + 1 // the power of ten of the last digit
		if last >= 0 && exp < 15 || last < 0 && (last > -7 || exp > -10 && exp < 10) {
			return appendPlain(to, digits, exp), nil
		}
		return appendExponent(to, digits, exp, ""), nil
	}
	if exp >= -4 && exp < 15 || exp == 15 && len(digits) > 16 {
		return appendPlain(to, digits, exp), nil
	}
	return appendExponent(to, digits, exp, "0"), nil
}

// appendFloat32 writes the digits that encoding/json writes, those of the shortest float32.
func appendFloat32(to []byte, x float32) ([]byte, error) {
	short, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil {
		return to, ErrNumber
	}
	return appendFloat(to, short, V8)
}

// appendPlain writes digits without an exponent; the first has the value 10^exp.
func appendPlain(to, digits []byte, exp int) []byte {
	if exp < 0 {
		to = append(to, "0."...)
		to = append(to, bytes.Repeat([]byte("0"), -exp-1)...)
		return append(to, digits...)
	}
	whole := exp + 1
	if len(digits) <= whole {
		to = append(to, digits...)
		to = append(to, bytes.Repeat([]byte("0"), whole-len(digits))...)
		return append(to, ".0"...)
	}
	to = append(to, digits[:whole]...)
	to = append(to, '.')
	return append(to, digits[whole:]...)
}

// appendExponent writes d.ddde+xx; Ruby's own form always has a digit after the point, and two in the exponent.
func appendExponent(to, digits []byte, exp int, pad string) []byte {
	to = append(to, digits[0])
	if len(digits) > 1 {
		to = append(append(to, '.'), digits[1:]...)
	} else if pad != "" {
		to = append(to, ".0"...)
	}
	if exp < 0 {
		to = append(to, "e-"...)
		exp = -exp
	} else {
		to = append(to, "e+"...)
	}
	if exp < 10 {
		to = append(to, pad...)
	}
	return strconv.AppendInt(to, int64(exp), 10)
}

// appendTime writes a time as fields like created_at and failed_at hold it: whole milliseconds in Sidekiq 8, else
// float seconds, always with a decimal point: without it Sidekiq 8 would read seconds as milliseconds.
func (d *Dialect) appendTime(to []byte, t time.Time) []byte {
	if d.milliseconds() {
		return strconv.AppendInt(to, t.UnixMilli(), 10)
	}
	return appendSeconds(to, t)
}

// appendSeconds writes a time as float seconds to the microsecond. For present times these are the shortest digits of
// the nearest float, which Ruby writes too.
func appendSeconds(to []byte, t time.Time) []byte {
	us := t.UnixMicro()
	if us < 0 {
		to = append(to, '-')
		us = -us
	}
	to = strconv.AppendInt(to, us/1e6, 10)
	fraction := fmt.Appendf(nil, ".%06d", us%1e6)
	for len(fraction) > 2 && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	return append(to, fraction...)
}

// secondsTime converts a score or a float time. Floats of this size are exact to a quarter of a microsecond.
func secondsTime(s float64) (time.Time, error) {
	if math.IsNaN(s) || math.Abs(s) > 1e11 {
		return time.Time{}, fmt.Errorf("%w: a time in seconds was expected", ErrNumber)
	}
	whole, fraction := math.Modf(s)
	return time.Unix(int64(whole), int64(math.Round(fraction*1e6))*1000), nil
}
