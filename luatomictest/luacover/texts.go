package luacover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

// Ask is a question of a test program to luagen: what runs in place of a script, or of a guard.
type Ask struct {
	Name   string   `json:"name"` // empty for a guard
	SHA    string   `json:"sha"`  // the digest of Source
	Source string   `json:"source"`
	Places []string `json:"places"` // of each line of a script, in the sources
}

// answer asks luagen.
func (a Ask) answer() string {
	text, err := a.post(os.Getenv(TextsVar))
	if err != nil {
		panic(fmt.Sprintf("luacover: luagen does not answer at %s=%q: %v", TextsVar, os.Getenv(TextsVar), err))
	}
	return text
}

func (a Ask) post(addr string) (string, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	// Without a proxy of the environment, and without a connection that outlives the tests.
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", reply.Status, text)
	}
	return string(text), err
}

// Serve answers the questions of test programs by rewrite, which is called by several goroutines, until stop is called.
// addr is for TextsVar.
func Serve(rewrite func(Ask) string) (addr string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask Ask
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, rewrite(ask))
	})}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}
