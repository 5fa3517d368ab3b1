package actionhero

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// A Response is the response of one node.
type Response struct {
	// ServerID is the node's id. Only the token protects it.
	ServerID string
	// Raw is the response as it was sent: in the promise eras the value, in the callback era the list of the callback's
	// arguments. It is nil if the method returned nothing.
	Raw json.RawMessage
	// Values are the arguments of the callback, for a node of the callback era; otherwise nil. That node sorted them
	// as text, so the position of the error is lost: ("abc") after a nil error is ["abc",null] and ("xyz") is
	// [null,"xyz"].
	Values []json.RawMessage
}

// Decode unmarshals the value. In the callback era the value is the only argument of the callback that is not null. If
// there are several, use Values.
func (r *Response) Decode(v any) error {
	raw := r.Raw
	if r.Values != nil {
		var err error
		if raw, err = r.only(); err != nil {
			return err
		}
	}
	if raw == nil {
		return errors.New("actionhero: the response has no value")
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("actionhero: response: %w", err)
	}
	return nil
}

func (r *Response) only() (json.RawMessage, error) {
	var found json.RawMessage
	for _, value := range r.Values {
		switch {
		case string(value) == "null":
		case found != nil:
			return nil,
				errors.New("actionhero: the callback had several values; their order is lost, see Response.Values")
		default:
			found = value
		}
	}
	return found, nil
}

// Err returns ErrRemote for [{}] of the callback era: a callback that got only an Error, whose text is lost. An empty
// object looks the same.
func (r *Response) Err() error {
	if len(r.Values) == 1 && string(bytes.Join(bytes.Fields(r.Values[0]), nil)) == "{}" {
		return fmt.Errorf("%w, of %s", ErrRemote, r.ServerID)
	}
	return nil
}

// response parses a doResponse. A node that answers with messageId sends the value. A node with requestId alone is
// older, and the era decides the form.
func (m *wire) response(era Era) *Response {
	r := &Response{ServerID: m.ServerID, Raw: m.Response}
	if m.MessageID != "" || era == Promise18 {
		return r
	}
	var list []json.RawMessage
	if json.Unmarshal(m.Response, &list) == nil && list != nil {
		r.Values = list
	}
	return r
}

// Args is a handler's result for a caller in the callback era: the arguments for its callback, such as Args{nil, value}
// for a callback that takes an error first. A caller of the promise eras gets the list.
type Args []any

// reply returns the response to a request. A caller of the callback era ends its process on everything but a list.
func reply(request *wire, era Era, value any, failed error) (text json.RawMessage, answer bool, err error) {
	args, list := value.(Args)
	if bare := request.MessageID != "" || era == Promise18; bare {
		if failed != nil {
			return nil, false, nil // these eras have no form for it: the caller times out
		}
		if list && args == nil {
			args = Args{}
		}
		if list {
			value = []any(args)
		}
		text, err = encode(value)
		return text, true, err
	}
	switch {
	case failed != nil:
		return json.RawMessage("[{}]"), true, nil // as callback(error)
	case list && len(args) == 0, value == nil:
		return json.RawMessage("[]"), true, nil
	case list:
		text, err = encode([]any(args))
	default:
		text, err = encode([]any{value})
	}
	return text, true, err
}
