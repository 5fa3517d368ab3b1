package actionhero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
