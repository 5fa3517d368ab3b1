package sidekiq

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// GlobalID names a record of a Rails application: "gid://shop/User/7". As an argument of Active Job, Ruby finds the
// record by it. In Go it is its text.
type GlobalID string

// Parts returns the application, the model and the id; all are empty where the text is no GlobalID.
func (g GlobalID) Parts() (app, model, id string) {
	u, err := url.Parse(string(g))
	if err != nil || u.Scheme != "gid" {
		return "", "", ""
	}
	model, id, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return u.Host, model, id
}

// MarshalJSON returns the form of Active Job.
func (g GlobalID) MarshalJSON() ([]byte, error) {
	return appendMap(nil, map[string]any{"_aj_globalid": string(g)})
}

// UnmarshalJSON reads the text.
func (g *GlobalID) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*string)(g)) }

// Symbol is a symbol of Ruby as an argument of Active Job.
type Symbol string

// MarshalJSON returns the form of Active Job.
func (s Symbol) MarshalJSON() ([]byte, error) { return serialized("SymbolSerializer", string(s)) }

// UnmarshalJSON reads the name.
func (s *Symbol) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*string)(s)) }

// RubyTime is a Time of Ruby as an argument of Active Job. A time.Time would be a String there.
type RubyTime struct{ time.Time }

// rubyTime is ISO 8601 with nanoseconds, as Active Job writes it.
const rubyTime = "2006-01-02T15:04:05.000000000Z07:00"

// MarshalJSON returns the form of Active Job.
func (t RubyTime) MarshalJSON() ([]byte, error) {
	return serialized("TimeSerializer", t.Format(rubyTime))
}

func serialized(serializer, value string) ([]byte, error) {
	return appendMap(nil, map[string]any{"_aj_serialized": "ActiveJob::Serializers::" + serializer, "value": value})
}

// Keywords are the keyword arguments of perform; they are the last argument of Active Job. A float stays a Float in
// Ruby, as in Args.
type Keywords map[string]any

// MarshalJSON returns the form of Active Job.
func (k Keywords) MarshalJSON() ([]byte, error) {
	all := maps.Clone(map[string]any(k))
	if all == nil {
		all = make(map[string]any, 1)
	}
	names := make([]any, 0, len(k))
	for _, name := range slices.Sorted(maps.Keys(map[string]any(k))) {
		names = append(names, name)
	}
	all["_aj_ruby2_keywords"] = names
	return appendMap(nil, all)
}
