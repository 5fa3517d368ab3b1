package actionhero

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/internal/exact"
)

// An Item is the result of Load.
type Item struct {
	Key string
	// Value is JSON, as it was saved. It is nil if an undefined value was saved.
	Value json.RawMessage
	// CreatedAt and ReadAt are by the clock of the process that wrote them. ReadAt is the last read before this Load,
	// zero for none.
	CreatedAt, ReadAt time.Time
	// ExpireAt is zero for an item that does not expire, and for every item in the Plain layout.
	ExpireAt time.Time
}

// Decode unmarshals the value.
func (i *Item) Decode(v any) error {
	if err := json.Unmarshal(i.Value, v); err != nil {
		return fmt.Errorf("actionhero: value of %q: %w", i.Key, err)
	}
	return nil
}

// LoadOptions are the settings of one Load.
type LoadOptions struct {
	// Extend sets the item's TTL, from now on. In the Stamped layout an item that was saved without a TTL keeps none,
	// as in ActionHero.
	Extend time.Duration
	// Retry is how long Load waits for another owner's lock.
	Retry time.Duration
}

// Load reads an item; nil options mean the defaults. The check of the lock, the read and the update of readAt are one
// script: one call, retried while the key is locked, for Retry. An item in the Stamped layout gets a new readAt by
// the server's clock, and its value keeps its bytes; without Extend, its TTL is unchanged.
//
// Errors: ErrLocked, ErrNotFound, ErrExpired, ErrMalformed.
func (c *Cache) Load(ctx context.Context, key string, opts *LoadOptions) (*Item, error) {
	var o LoadOptions
	if opts != nil {
		o = *opts
	}
	var item *Item
	err := c.await(ctx, o.Retry, func() error {
		r, err := script.CacheLoad(ctx, c.client, script.CacheLoadParams{
			Lock: c.lock(key), Item: c.item(key), Name: c.opts.LockName, Extend: o.Extend,
		})
		if err != nil {
			return fmt.Errorf("actionhero: %w", err)
		}
		switch r.State {
		case script.CacheLoadStateLocked:
			return &LockedError{key, r.Holder, remaining(r.Remaining)}
		case script.CacheLoadStateMissing:
			return fmt.Errorf("%w: %q", ErrNotFound, key)
		case script.CacheLoadStateExpired:
			return fmt.Errorf("%w: %q", ErrExpired, key)
		}
		if item, err = parseItem(key, r.Item); err != nil {
			return err
		}
		if at, ok := r.Expires.Get(); ok {
			item.ExpireAt = at
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return item, nil
}

func parseItem(key, text string) (*Item, error) {
	var doc *struct {
		Value     json.RawMessage `json:"value"`
		CreatedAt *float64        `json:"createdAt"`
		ReadAt    *float64        `json:"readAt"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || doc == nil {
		return nil, fmt.Errorf("%w: %q", ErrMalformed, key)
	}
	return &Item{Key: key, Value: doc.Value, CreatedAt: fromJS(doc.CreatedAt), ReadAt: fromJS(doc.ReadAt)}, nil
}

// fromJS converts a JavaScript number to a time.
func fromJS(ms *float64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMicro(int64(*ms * 1000))
}

// Save writes an item for ttl; with 0 it does not expire. A value of type json.RawMessage keeps its bytes; any other
// is marshalled, without the escapes that encoding/json adds for HTML and JavaScript. The times in it are by the
// server's clock. In the Stamped layout the TTL of the key is rounded up to whole seconds, as ActionHero does, and
// expireTimestamp is exact.
//
// The check of the lock and the write are one script, one call. The error is ErrLocked if another owner holds the lock,
// lua.ErrTooLarge above 1 MiB, and ErrEncoding for a text that is not UTF-8.
func (c *Cache) Save(ctx context.Context, key string, value any, ttl time.Duration) error {
	text, err := encode(value)
	if err != nil {
		return fmt.Errorf("actionhero: value of %q: %w", key, err)
	}
	r, err := script.CacheSave(ctx, c.client, script.CacheSaveParams{
		Lock: c.lock(key), Item: c.item(key), Name: c.opts.LockName, Value: text, TTL: ttl,
		Stamped: c.opts.Layout == Stamped,
	})
	if err != nil {
		return fmt.Errorf("actionhero: %w", err)
	}
	if r.State == script.CacheSaveStateLocked {
		return &LockedError{key, r.Holder, remaining(r.Remaining)}
	}
	return nil
}

// unescaped writes the two characters that encoding/json escapes and JSON.stringify does not. It skips \\: the six
// characters \u2028 in a value stay six.
var unescaped = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")

// encode returns JSON as JSON.stringify writes it, or the bytes of a RawMessage.
func encode(value any) (json.RawMessage, error) {
	text, raw := value.(json.RawMessage)
	if raw = raw && text != nil; !raw {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(value); err != nil {
			return nil, err
		}
		text = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
		if bytes.Contains(text, []byte(`\u202`)) {
			text = []byte(unescaped.Replace(string(text)))
		}
	}
	switch {
	case raw && !json.Valid(text):
		return nil, fmt.Errorf("not JSON")
	case !exact.JSON(value, text):
		return nil, ErrEncoding
	}
	return text, nil
}

// Destroy deletes an item, and reports whether it existed. The check of the lock and the deletion are one script, one
// call. The error is ErrLocked if another owner holds the lock; after a lost reply it is lua.ErrOutcomeUnknown.
func (c *Cache) Destroy(ctx context.Context, key string) (bool, error) {
	r, err := script.CacheDestroy(ctx, c.client, script.CacheDestroyParams{
		Lock: c.lock(key), Item: c.item(key), Name: c.opts.LockName,
	})
	if err != nil {
		return false, fmt.Errorf("actionhero: %w", err)
	}
	if r.State == script.CacheDestroyStateLocked {
		return false, &LockedError{key, r.Holder, remaining(r.Remaining)}
	}
	return r.State == script.CacheDestroyStateDestroyed, nil
}
