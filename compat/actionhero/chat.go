package actionhero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ChatMessage is a message in a room.
type ChatMessage struct {
	Room string
	// ConnectionID is the sender. An empty one is sent as 0, ActionHero's id of the server itself.
	ConnectionID string
	Message      any
	SentAt       time.Time // zero: now, by this process' clock
}

type wireChat struct {
	MessageType string          `json:"messageType"`
	ServerToken string          `json:"serverToken"`
	ServerID    string          `json:"serverId"`
	Message     json.RawMessage `json:"message"`
	SentAt      int64           `json:"sentAt"`
	Connection  struct {
		ID   any    `json:"id"`
		Room string `json:"room"`
	} `json:"connection"`
}

// Chat sends a message to a room: the nodes pass it to their connections in the room. One PUBLISH, at most once. The
// room is not checked, and the middleware of api.chatRoom does not run. Run need not be running.
func (n *Node) Chat(ctx context.Context, m ChatMessage) error {
	body, err := encode(m.Message)
	if err != nil {
		return fmt.Errorf("actionhero: chat: %w", err)
	}
	if m.Room == "" || string(body) == "null" || string(body) == `""` {
		return errors.New("actionhero: chat: both room and message are required")
	}
	w := wireChat{MessageType: typeChat, ServerToken: n.opts.ServerToken, ServerID: n.opts.ServerID, Message: body}
	if m.SentAt.IsZero() {
		m.SentAt = time.Now()
	}
	w.SentAt = m.SentAt.UnixMilli()
	w.Connection.ID, w.Connection.Room = m.ConnectionID, m.Room
	if m.ConnectionID == "" {
		w.Connection.ID = 0
	}
	text, err := encode(w)
	if err != nil {
		return fmt.Errorf("actionhero: chat: %w", err)
	}
	_, err = n.publish(ctx, text)
	return err
}

// ParseChat parses a message that OnMessage received for type chat.
func ParseChat(m Message) (ChatMessage, error) {
	var w wireChat
	if err := json.Unmarshal(m.Raw, &w); err != nil {
		return ChatMessage{}, fmt.Errorf("actionhero: chat: %w", err)
	}
	c := ChatMessage{Room: w.Connection.Room, Message: w.Message, SentAt: time.UnixMilli(w.SentAt)}
	if id, ok := w.Connection.ID.(string); ok {
		c.ConnectionID = id
	}
	return c, nil
}

// EndMargin is how much before its whole seconds a lock of a Cache ends. A lock whose end ActionHero up to 17 has
// changed by EXPIRE ends later, so that Unlock recognizes this.
const EndMargin = 10 * time.Millisecond

// ends remembers when the locks of a Cache end, in ms by the server's clock. Locks that nobody unlocks are forgotten
// after their end.
type ends struct {
	mu    sync.Mutex
	at    map[string]int64
	prune int // the number of locks at which expired ones are removed
}

// of returns the end of a lock; 0 when it is not known.
func (e *ends) of(key string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[key]
}

// set stores the end of a lock that was taken for ttl.
func (e *ends) set(key string, at int64, ttl time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = make(map[string]int64)
	}
	e.at[key] = at
	if len(e.at) > max(e.prune, 64) {
		now := at - ttl.Milliseconds()
		maps.DeleteFunc(e.at, func(_ string, end int64) bool { return end < now })
		e.prune = 2 * len(e.at)
	}
}

func (e *ends) forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.at, key)
}
