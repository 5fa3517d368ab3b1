package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/show"
)

// shown is a text of somebody else as a page shows it.
func shown(most int, text string) string {
	if most > line {
		return show.Lines(most, text)
	}
	return show.Text(most, text)
}

// line is the longest text that is shown on one line; what is longer keeps its line ends.
const line = 300

// number has its thousands apart.
func number[T int | int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return sign + digits
}

// sized is a number of bytes.
func sized(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// rounded is a duration for people.
func rounded(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + rounded(-max(d, -math.MaxInt64)) // math.MinInt64 has no opposite
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// written is the time, or the nearest one that JSON can hold: a score can be in any year.
func written(at time.Time) time.Time {
	switch at = at.UTC(); {
	case at.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	case at.Year() < 0:
		return time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return at
}

// ago is a time by its distance from now.
func ago(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "–"
	case at.After(now):
		return "in " + rounded(at.Sub(now))
	}
	return rounded(now.Sub(at)) + " ago"
}

// points are the corners of a line through the values, in a box of 100 by 20 whose height is top, the first value left.
func points(values []int, top int) string {
	var b strings.Builder
	for i, v := range values {
		fmt.Fprintf(&b, "%.1f,%.1f ", float64(i)*100/float64(max(len(values)-1, 1)),
			19-18*float64(v)/float64(max(top, 1)))
	}
	return strings.TrimSpace(b.String())
}

// perSecond is a rate.
func perSecond(rate speed) string {
	switch {
	case rate < 0:
		return "–"
	case rate == 0:
		return "0/s"
	case rate < 10:
		return fmt.Sprintf("%.1f/s", rate)
	}
	return number(int(rate+0.5)) + "/s"
}

// several is a number of things by their name.
func several(n int, name string) string {
	if n == 1 {
		return "1 " + name
	}
	if strings.HasSuffix(name, "s") {
		return number(n) + " " + name + "es"
	}
	return number(n) + " " + name + "s"
}
