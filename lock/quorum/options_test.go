package quorum_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/lua"
)

// The settings that both have are refused as package lock refuses them.
func TestQuorumOptionsHaveTheBoundsOfALock(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	t.Cleanup(func() { _ = client.Close() })
	const most = 10 * 365 * 24 * time.Hour
	for _, o := range []lock.Options{
		{TTL: -1}, {TTL: time.Microsecond}, {TTL: 1 << 62}, {TTL: most + time.Millisecond},
		{MaxHold: -1}, {MaxHold: most + 1}, {Poll: -1}, {Poll: most + 1}, {Note: strings.Repeat("n", 1025)},
	} {
		_, want := lock.New(client, &o).Try(t.Context(), "x")
		q := newQuorum(t, []redis.UniversalClient{client}, &quorum.Options{
			TTL: o.TTL, MaxHold: o.MaxHold, Poll: o.Poll, Note: o.Note,
		})
		_, err := q.Try(t.Context(), "x")
		require.Error(t, want)
		require.EqualError(t, err, strings.Replace(want.Error(), "lock:", "quorum:", 1))
	}
	for _, o := range []quorum.Options{{NodeTimeout: -1}, {TTL: most, NodeTimeout: -time.Hour}} {
		_, err := newQuorum(t, []redis.UniversalClient{client}, &o).Acquire(t.Context(), "x")
		require.ErrorIs(t, err, lua.ErrOutOfRange)
		require.ErrorContains(t, err, "NodeTimeout")
	}
	longest := quorum.Options{TTL: most, MaxHold: most, Poll: most, NodeTimeout: 1}
	_, err := newQuorum(t, []redis.UniversalClient{client}, &longest).Try(t.Context(), "x")
	require.ErrorIs(t, err, quorum.ErrNoQuorum, "it is in range")
}

// One server is not a majority of three because its client is there three times.
func TestQuorumOfOneServerTwiceIsRefused(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	t.Cleanup(func() { _ = client.Close() })
	in := struct {
		*redis.Client
		tags []string
	}{Client: client} // it cannot be compared
	for text, clients := range map[string][]redis.UniversalClient{
		"clients: 0 is out of range":             {},
		"clients: number 2 is number 0 again: ":  {client, in, client},
		"clients: number 1 is nil: ":             {client, nil, in},
		"give each server once":                  {client, client},
		"luatomic: quorum: clients: number 0 is": {nil},
	} {
		_, err := newQuorum(t, clients, nil).Try(t.Context(), "x")
		require.ErrorIs(t, err, lua.ErrOutOfRange, text)
		require.ErrorContains(t, err, text)
	}
	_, err := newQuorum(t, []redis.UniversalClient{in, in}, &quorum.Options{NodeTimeout: 1}).Try(t.Context(), "x")
	require.ErrorIs(t, err, quorum.ErrNoQuorum, "it is not known what is in a struct")
}
