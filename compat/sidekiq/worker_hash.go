package sidekiq

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
)

// hashReader reads the jobs of a process some at a time, the newest first: they may be hundreds of any size.
type hashReader struct {
	w     *worker
	key   string
	left  []string       // numbers of jobs
	names map[string]int // how many of the jobs so far have that name
	stray int            // entries that are no jobs
	ask   int            // how many to read next
}

// readHash reads which jobs there are.
func (w *worker) readHash(ctx context.Context, key string) (*hashReader, error) {
	fields, err := w.d.client.HKeys(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	r := &hashReader{w: w, key: key, names: make(map[string]int), ask: 10}
	ids := make(map[string]int64, len(fields))
	for _, field := range fields {
		if field == "last" { // the highest number that a take has used
			continue
		}
		id, err := strconv.ParseInt(field, 10, 64)
		if err != nil || strconv.FormatInt(id, 10) != field { // the scripts look for the number as it is written
			r.stray++
			continue
		}
		ids[field] = id
		r.left = append(r.left, field)
	}
	slices.SortFunc(r.left, func(a, b string) int { return cmp.Compare(ids[b], ids[a]) })
	return r, nil
}

// next reads some jobs, by queue. The size of an entry is not known before it is read: so the first are few, and then
// as many as fit by the mean of the last, at most three times as many.
func (r *hashReader) next(ctx context.Context) ([]group, error) {
	if len(r.left) == 0 {
		return nil, nil
	}
	fields := r.left[:min(r.ask, len(r.left))]
	entries, err := r.w.d.client.HMGet(ctx, r.key, fields...).Result()
	if err != nil {
		return nil, err
	}
	r.left = r.left[len(fields):]
	var groups []group
	size := 1
	for i, v := range entries {
		if entry, there := v.(string); there {
			size += len(entry)
			groups = r.add(groups, fields[i], entry)
		}
	}
	r.ask = max(1, min(3*len(fields), maxTake*len(fields)/size))
	tellApart(groups, r.names)
	return groups, nil
}

// add puts a job behind those of its queue.
func (r *hashReader) add(groups []group, field, entry string) []group {
	k, queue, ok := r.w.d.readEntry(field, entry)
	if !ok {
		r.stray++
		return groups
	}
	i := slices.IndexFunc(groups, func(g group) bool { return g.queue == queue })
	if i < 0 {
		i = len(groups)
		groups = append(groups, group{queue: queue})
	}
	groups[i].jobs = append(groups[i].jobs, k)
	return groups
}

// readEntry parses a hash entry: the number of a job, its queue and its payload.
func (d *Dialect) readEntry(field, entry string) (k kept, queue string, ok bool) {
	id, err := strconv.ParseInt(field, 10, 64)
	size, rest, found := strings.Cut(entry, ":")
	n, badSize := strconv.Atoi(size)
	if err != nil || badSize != nil || !found || n < 0 || n > len(rest) {
		return k, "", false
	}
	queue, ours := strings.CutPrefix(rest[:n], d.queueKey(""))
	payload := []byte(rest[n:])
	k.id, k.rescue = id, digest(payload)
	if job, err := d.readJob(queue, payload); err == nil {
		k.job, k.rescue = job, d.rescueName(job)
	}
	return k, queue, ours
}
