package actionhero

import "encoding/json"

// Recode parses a message and writes it again.
func Recode(text string) (string, bool) {
	m, ok := parse(text)
	if !ok {
		return "", false
	}
	out, err := encode(m)
	return string(out), err == nil
}

// ParseResponse reads a doResponse as a node of that era does.
func ParseResponse(text string, era Era) (*Response, error) {
	m, ok := parse(text)
	if !ok {
		return nil, ErrMalformed
	}
	r := m.response(era)
	return r, r.Err()
}

// Reply returns the response of a node of that era to a request with these ids.
func Reply(requestID, messageID string, era Era, value any, failed error) (json.RawMessage, bool, error) {
	return reply(&wire{RequestID: requestID, MessageID: messageID}, era, value, failed)
}

// Addressed reads the connection and the arguments of a do.
func Addressed(text string) (connection string, one bool, args []json.RawMessage) {
	m, _ := parse(text)
	connection, one = m.connection()
	return connection, one, m.arguments()
}

// RoundTrips is the number of round trips in flight.
func RoundTrips(n *Node) int {
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	return n.out.active
}

// Waiting is the number of messages that wait for a round trip.
func Waiting(n *Node) int {
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	return len(n.out.queue)
}
