package sidekiq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// ErrJID reports that an id cannot be that of a job.
var ErrJID = errors.New("sidekiq: bad jid")

// Ref names one job of a set.
type Ref struct {
	Set Set
	JID string
	// Score, if it is set, is the job's score in seconds, and the job is found in O(log n). Without it, or if more than
	// 500 jobs share it, as after a bulk push in Ruby, the set is scanned.
	Score float64
}

// Found is a job of a set.
type Found struct {
	Payload []byte
	// Score is when it is due, in seconds; At is the same as a time.
	Score float64
	At    time.Time
}

// Find reads a job of a set; ok is false when the set does not have it. Keys: the set. Cost: O(log n) with a score that
// few jobs share, otherwise O(n) in steps of some hundred members, between which other clients are served. A job that
// is in the set during the whole scan is found. Errors: ErrSet, ErrJID.
func (d *Dialect) Find(ctx context.Context, ref Ref) (found Found, ok bool, err error) {
	if err := ref.check(); err != nil {
		return found, false, err
	}
	if ref.Score != 0 {
		found, ok, err = d.findAt(ctx, ref)
	} else {
		found, ok, err = d.findAny(ctx, ref)
	}
	if err != nil {
		return found, false, fmt.Errorf("sidekiq: find in %s: %w", ref.Set, err)
	}
	return found, ok, nil
}

func (r *Ref) check() error {
	if err := r.Set.check(); err != nil {
		return err
	}
	if r.JID == "" {
		return fmt.Errorf("%w: it is empty", ErrJID)
	}
	return nil
}

func (d *Dialect) findAt(ctx context.Context, ref Ref) (Found, bool, error) {
	score := strconv.FormatFloat(ref.Score, 'g', 17, 64)
	members, err := d.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: d.key(string(ref.Set)), Start: score, Stop: score, ByScore: true, Count: readAtOnce,
	}).Result()
	for _, m := range members {
		if ref.names([]byte(m)) {
			return newFound([]byte(m), ref.Score), true, nil
		}
	}
	if len(members) == readAtOnce {
		return d.findAny(ctx, ref) // what leaves the set meanwhile would hide a job from steps by place
	}
	return Found{}, false, err
}

// readAtOnce is about how many members of a set one step reads.
const readAtOnce = 500

// globs escapes the special characters of a MATCH pattern.
var globs = strings.NewReplacer("*", "\\*", "?", "\\?", "[", "\\[", "]", "\\]", "\\", "\\\\")

// pattern matches the payloads that can have the id: by its longest part that has one form in JSON, as that of a
// character that can be escaped is not known.
func pattern(jid string) string {
	longest := ""
	for _, part := range strings.FieldsFunc(jid, escapable) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return "*" + globs.Replace(longest) + "*"
}

func escapable(r rune) bool { return r < ' ' || r >= 0x7f || strings.ContainsRune("\"\\/<>&'", r) }

func (d *Dialect) findAny(ctx context.Context, ref Ref) (Found, bool, error) {
	for found, err := range d.scan(ctx, ref.Set, pattern(ref.JID)) {
		if err != nil || (ref.Score == 0 || ref.Score == found.Score) && ref.names(found.Payload) {
			return found, err == nil, err
		}
	}
	return Found{}, false, nil
}

// scan yields the members of a set that match.
func (d *Dialect) scan(ctx context.Context, set Set, match string) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		for cursor := uint64(0); ; {
			some, next, err := d.client.ZScan(ctx, d.key(string(set)), cursor, match, readAtOnce).Result()
			if err != nil {
				yield(Found{}, err)
				return
			}
			for i := 0; i+1 < len(some); i += 2 {
				score, err := strconv.ParseFloat(some[i+1], 64)
				if err == nil && !yield(newFound([]byte(some[i]), score), nil) {
					return
				}
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}

// names reports whether the payload's own jid is the id, and not one inside its arguments.
func (r *Ref) names(payload []byte) bool {
	jid, found, err := field(payload, "jid")
	return err == nil && found && len(jid) > 2 && jid[0] == '"' && text(jid) == r.JID
}

func newFound(payload []byte, score float64) Found {
	at, _ := secondsTime(score) // zero for a score that is no time
	return Found{Payload: payload, Score: score, At: at}
}

// Reschedule gives a job of a set another time, and returns its new score. ok is false when the set does not have the
// job, or no longer has it when the score is set. Only the score is written, so the bytes and other jobs of the same
// time do not change. After a lost reply Reschedule retries with the same score for at most 50 s. A copy that arrives
// after a later call changes nothing. Additional key: luatomic:reschedule:<random>, a short string that expires after a
// minute. See Find for the cost and Options.ExactTimes for the microseconds. Errors: ErrSet, ErrJID, ErrTime.
func (d *Dialect) Reschedule(ctx context.Context, ref Ref, at time.Time) (score float64, ok bool, err error) {
	if at.IsZero() {
		return 0, false, fmt.Errorf("%w: the new time is missing", ErrTime)
	}
	found, ok, err := d.Find(ctx, ref)
	if err != nil || !ok {
		return 0, false, err
	}
	due, err := dueTime(at, 0)
	if err != nil {
		return 0, false, err
	}
	step := []draft{{later: due}}
	d.schedule(step)
	r, err := d.rescheduleTo(ctx, ref.Set, found.Payload, step[0].kind)
	if err != nil {
		return 0, false, fmt.Errorf("sidekiq: reschedule in %s: %w", ref.Set, err)
	}
	score, _ = strconv.ParseFloat(r.Due, 64) // empty when the set does not have it
	return score, r.Found, nil
}

// rescheduleTo sets a score under a receipt that the server keeps for a minute. The attempts end before: the last of
// them still finds it.
func (d *Dialect) rescheduleTo(
	ctx context.Context, set Set, member []byte, due string,
) (script.RescheduleResult, error) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	return script.Reschedule(ctx, d.client, script.RescheduleParams{
		Set: d.key(string(set)), Receipt: d.key("luatomic:reschedule:" + rand.Text()[:16]), Member: member, Due: due,
	})
}

// Delete removes a job from a set, and no other job of the same time. ok is false when the set does not have the job.
// When the reply is lost the error is lua.ErrOutcomeUnknown; a retry is safe. See Find for the cost. Errors: ErrSet,
// ErrJID.
func (d *Dialect) Delete(ctx context.Context, ref Ref) (ok bool, err error) {
	found, ok, err := d.Find(ctx, ref)
	if err != nil || !ok {
		return false, err
	}
	n, err := script.Delete(ctx, d.client, script.DeleteParams{Set: d.key(string(ref.Set)), Member: found.Payload})
	if err != nil {
		return false, fmt.Errorf("sidekiq: delete from %s: %w", ref.Set, err)
	}
	return n == 1, nil
}

// List reads up to 200 members of a set from an offset on, earliest first, including members that are not jobs. Keys:
// the set. Cost: O(log n + max) and the bytes of the jobs. Errors: ErrSet, and lua.ErrOutOfRange for an offset below 0.
func (d *Dialect) List(ctx context.Context, set Set, offset, max int) ([]Found, error) {
	if err := set.check(); err != nil {
		return nil, err
	}
	if offset < 0 || max < 1 {
		return nil, fmt.Errorf("sidekiq: list %s: %w: offset %d, max %d", set, lua.ErrOutOfRange, offset, max)
	}
	last := int64(offset + min(max, 200) - 1)
	members, err := d.client.ZRangeWithScores(ctx, d.key(string(set)), int64(offset), last).Result()
	if err != nil {
		return nil, fmt.Errorf("sidekiq: list %s: %w", set, err)
	}
	found := make([]Found, 0, len(members))
	for _, m := range members {
		member, _ := m.Member.(string)
		found = append(found, newFound([]byte(member), m.Score))
	}
	return found, nil
}
