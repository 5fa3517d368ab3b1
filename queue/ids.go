package queue

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// madeMark begins each id that a call makes by itself. No caller chooses such an id, so the scripts tell by it how long
// an id is known after the end of its job; see scripts/queue/part/mark_time.lua.
const madeMark = ":"

// madeText writes an id in 26 lowercase characters that sort as its bytes do.
var madeText = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// madeSize is the length of an id that a call makes.
const madeSize = len(madeMark) + 26

func made(u uuid.UUID) string { return madeMark + madeText.EncodeToString(u[:]) }

// newID makes an id, of the time and random bits as in a UUID of version 7.
func newID() (string, error) {
	u, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return made(u), nil
}

// idOf returns the id of a job, or a new one.
func idOf(j *Job) (string, error) {
	switch {
	case j.ID == "":
		return newID()
	case !j.made && strings.HasPrefix(j.ID, madeMark):
		return "", fmt.Errorf("%w: id %q begins with %s, as only the ids do that a push makes; choose another first "+
			"character, or leave ID empty", lua.ErrBadName, j.ID, madeMark)
	}
	return j.ID, keys.CheckName("id", j.ID)
}

// idBase makes ids of the places of jobs in a call.
type idBase struct {
	base uuid.UUID
	made bool // the token is one that a push to shards made, and so are the ids
}

// derivedIDs returns the base of a token. Ids under a token of the caller count as chosen by the caller: they are UUIDs
// of version 8.
func derivedIDs(token string) idBase {
	return idBase{
		uuid.NewHash(sha256.New(), uuid.NameSpaceOID, []byte(token), 8),
		strings.HasPrefix(token, madeMark) && len(token) == madeSize,
	}
}

func (b idBase) at(i int) string {
	binary.BigEndian.PutUint16(b.base[14:], uint16(i))
	if b.made {
		return made(b.base)
	}
	return b.base.String()
}

// name gives a job without an id that of its place.
func (b idBase) name(j *Job, place int) {
	if j.ID == "" {
		j.ID, j.made = b.at(place), b.made
	}
}

// named returns the jobs, each with an id. A job without one gets the id of its place; first is the place of the first
// job.
func (b idBase) named(jobs []Job, first int) []Job {
	out := slices.Clone(jobs)
	for i := range out {
		b.name(&out[i], first+i)
	}
	return out
}
