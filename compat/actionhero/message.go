package actionhero

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The message types of ActionHero itself.
const (
	typeDo       = "do"
	typeResponse = "doResponse"
	typeChat     = "chat"
)

// wire is a message of the channel, with the fields in ActionHero's order.
//
// Up to npm 19.0.2 the id is requestId, from 19.0.4 on messageId. A call carries both, and each node answers with the
// one of its version.
type wire struct {
	MessageType  string          `json:"messageType"`
	ServerID     string          `json:"serverId,omitempty"`
	ServerToken  string          `json:"serverToken"`
	RequestID    string          `json:"requestId,omitempty"`
	MessageID    string          `json:"messageId,omitempty"`
	Method       string          `json:"method,omitempty"`
	ConnectionID json.RawMessage `json:"connectionId,omitempty"`
	Args         json.RawMessage `json:"args,omitempty"`
	Response     json.RawMessage `json:"response,omitempty"`
}

// parse reads a message. It refuses a text that is not a JSON object, and a call or a response with a field of
// another type than ActionHero's. In messages of the application's own types all but the first three fields are the
// application's.
func parse(text string) (*wire, bool) {
	var m *wire
	err := json.Unmarshal([]byte(text), &m)
	if err == nil {
		return m, m != nil
	}
	var own *struct {
		MessageType string `json:"messageType"`
		ServerID    any    `json:"serverId"`
		ServerToken string `json:"serverToken"`
	}
	if json.Unmarshal([]byte(text), &own) != nil || own == nil ||
		own.MessageType == typeDo || own.MessageType == typeResponse {
		return nil, false
	}
	id, _ := own.ServerID.(string)
	return &wire{MessageType: own.MessageType, ServerID: id, ServerToken: own.ServerToken}, true
}

// trusted compares the token in constant time.
func (m *wire) trusted(token string) bool {
	return subtle.ConstantTimeCompare([]byte(m.ServerToken), []byte(token)) == 1
}

// connection returns the connection that is addressed, and false if all nodes are addressed: then JavaScript takes
// the value for false.
func (m *wire) connection() (string, bool) {
	switch v := strings.TrimSpace(string(m.ConnectionID)); v {
	case "", "null", `""`, "0", "-0", "0.0", "false":
		return "", false
	}
	var id string
	if json.Unmarshal(m.ConnectionID, &id) != nil {
		id = string(m.ConnectionID) // a number is the name of a property too
	}
	return id, true
}

// arguments reads args as a node does: a value that is not a list is the only argument.
func (m *wire) arguments() []json.RawMessage {
	raw := bytes.TrimSpace(m.Args)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return []json.RawMessage{raw}
	}
	return list
}

// encodeArgs returns the list of the arguments, never null: ActionHero up to 17 ends its process on null.
func encodeArgs(args []any) (json.RawMessage, error) {
	if args == nil {
		return json.RawMessage("[]"), nil
	}
	return encode(args)
}

// inherited are the properties that every JavaScript object has. A lookup in the handlers or the connections of any
// node finds them.
var inherited = []string{
	"constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf",
	"__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
}

func checkConnection(id string) error {
	if slices.Contains(inherited, id) {
		return fmt.Errorf("%w: connection %q exists on every node", ErrBadName, id)
	}
	return nil
}

// checkMethod refuses names on which a node fails before it looks up the method.
func checkMethod(method string) error {
	path, ok := strings.CutPrefix(method, "api.")
	if !ok || slices.Contains(strings.Split(path, "."), "") {
		return fmt.Errorf("%w: method %q is not a path below api; use one such as api.jobs.run", ErrBadName, method)
	}
	return nil
}

func checkType(messageType string) error {
	switch {
	case messageType == typeDo, messageType == typeResponse:
		return fmt.Errorf("%w: messages of type %q are reserved for DoCluster", ErrBadName, messageType)
	case messageType == "" || slices.Contains(inherited, messageType):
		return fmt.Errorf("%w: message type %q", ErrBadName, messageType)
	}
	return nil
}
