package operate

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// A process that does 100 a second and reports them each 5 s has a rate of 100 at every moment.
func TestRateOfACounterThatComesInReports(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 30 * time.Second} {
		var m Meter
		for at := 300 * time.Millisecond; at < 2*time.Minute; at += every {
			rate, ok := m.Rate("q", int64(at/(5*time.Second))*500, start.Add(at))
			if at > Window+every && every >= step && Window%every == 0 {
				require.True(t, ok)
				require.InDelta(t, 100, rate, 10, "%v at %v", every, at)
			} else if ok && at > Window {
				require.InDelta(t, 100, rate, 60, "%v at %v", every, at)
			}
		}
	}
}

func TestRateIsNotKnownAtFirst(t *testing.T) {
	t.Parallel()
	var m Meter
	_, ok := m.Rate("a", 0, start)
	require.False(t, ok)
	_, ok = m.Rate("a", 10, start.Add(atLeast-1))
	require.False(t, ok)
	rate, ok := m.Rate("a", 10, start.Add(atLeast))
	require.True(t, ok)
	require.InDelta(t, 2.5, rate, 0.01)
	_, ok = m.Rate("a", 3, start.Add(2*atLeast)) // restarted
	require.False(t, ok)
	_, ok = m.Rate("a", 50, start.Add(2*atLeast+keep+1)) // not seen for long
	require.False(t, ok)
}

func TestSignedRate(t *testing.T) {
	t.Parallel()
	m := Meter{Signed: true}
	_, _ = m.Rate("a", 100, start)
	rate, ok := m.Rate("a", 60, start.Add(8*time.Second))
	require.True(t, ok)
	require.InDelta(t, -5, rate, 0.01)
}

// What a caller reads often, or under many names, takes bounded memory.
func TestMeterIsBounded(t *testing.T) {
	t.Parallel()
	var m Meter
	for i := range 10_000 {
		_, _ = m.Rate("often", int64(i), start.Add(time.Duration(i)*time.Millisecond))
	}
	require.LessOrEqual(t, len(m.seen["often"]), int(Window/step)+2)
	for i := range maxCounters + 5 {
		_, _ = m.Rate(strconv.Itoa(i), 1, start)
	}
	require.LessOrEqual(t, len(m.seen), maxCounters)
}
