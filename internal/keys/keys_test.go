package keys_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
)

// Names, tags and tokens that resemble parts of each other's keys, in all combinations: no two queues share a key or
// channel, and all keys of one tag are in one slot.
func TestNoTwoQueuesShareAKey(t *testing.T) {
	t.Parallel()
	words := []string{"r", "s", "i", "w", "i:r", "r:i", "i:i:r", ":", ":r", "a", "a:r", "a:i", "a:i:r", "mail"}
	owner := make(map[string]string)
	claim := func(key, who string) {
		require.Empty(t, owner[key], "%s: also of %s", key, who)
		owner[key] = who
	}
	for _, tag := range append([]string{""}, words...) {
		for _, name := range words {
			q, err := keys.NewQueue("", tag, name)
			require.NoError(t, err)
			who := "queue " + name + " of tag " + tag
			v := reflect.ValueOf(q)
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					claim(v.Field(i).String(), who)
				}
			}
			for _, token := range words {
				claim(q.Receipt(token), who)
				claim(q.Channel(token), who)
			}
			hashed := tag
			if tag == "" {
				hashed = name
			}
			require.True(t, strings.HasPrefix(q.Ready, "{"+hashed+"}"))
		}
		for _, token := range words {
			if tag != "" {
				claim(keys.Receipt("", tag, token), "batches of tag "+tag)
			}
		}
	}
}

// The keys of a queue without a tag must not change: they store jobs.
func TestKeysOfAQueueWithoutATag(t *testing.T) {
	t.Parallel()
	q, err := keys.NewQueue("app:", "", "mail")
	require.NoError(t, err)
	require.Equal(t, []string{"app:{mail}:r", "app:{mail}:s", "app:{mail}:b", "app:{mail}:l", "app:{mail}:n",
		"app:{mail}:d", "app:{mail}:u",
		"app:{mail}:ux", "app:{mail}:c", "app:{mail}:w", "app:{mail}:i:t", "app:{mail}:w:x"},
		[]string{q.Ready, q.Scheduled, q.Bodies, q.Leases, q.Failures, q.Dead, q.Unique, q.Expiry, q.Control, q.Wake,
			q.Receipt("t"), q.Channel("x")})
	q, err = keys.NewQueue("app:", "in", "mail")
	require.NoError(t, err)
	require.Equal(t, "app:{in}{mail}:r", q.Ready)
	require.Equal(t, "app:{in}{}:i:t", keys.Receipt("app:", "in", "t"))
	for _, bad := range [][3]string{{"p{", "", "n"}, {"", "{", "n"}, {"", "t", "n}"}, {"", "t", ""}} {
		_, err = keys.NewQueue(bad[0], bad[1], bad[2])
		require.ErrorIs(t, err, keys.ErrBadName)
	}
}

func TestCheckSecretIsCheckNameWithoutTheValue(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "token is empty", "s{": "token holds a brace, and braces choose the cluster slot",
		"s\n": "token holds a control character",
	} {
		err := keys.CheckSecret("token", value)
		require.ErrorIs(t, err, keys.ErrBadName)
		require.EqualError(t, err, "bad name: "+want)
		require.ErrorIs(t, keys.CheckName("token", value), keys.ErrBadName)
	}
	require.NoError(t, keys.CheckSecret("token", "s"))
}
