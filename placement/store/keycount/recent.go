package keycount

// change is the creation (by is 1) or deletion (by is -1) of a key.
type change struct {
	revision uint64
	key      []byte
	by       int
}

// recent are the newest changes, by ascending revision, all above floor.
type recent struct {
	changes     []change
	bytes       int
	floor, head uint64
}

// add adds a change, and drops the oldest changes above the limits.
func (r *recent) add(c change, limits *Limits) {
	r.changes = append(r.changes, c)
	r.bytes += len(c.key)
	for len(r.changes) > limits.Changes || r.bytes > limits.ChangeBytes {
		oldest := r.changes[0]
		r.changes[0] = change{}
		r.changes = r.changes[1:]
		r.bytes -= len(oldest.key)
		r.floor = oldest.revision
	}
}

func (r *recent) reset(revision uint64) { *r = recent{floor: revision, head: revision} }

// covers reports whether all changes since a revision are known.
func (r *recent) covers(at uint64) bool { return at >= r.floor && at <= r.head }

// since returns the change in the number of keys of a span since a revision.
func (r *recent) since(at uint64, start, end string) (by int) {
	for i := len(r.changes) - 1; i >= 0 && r.changes[i].revision > at; i-- {
		if c := &r.changes[i]; string(c.key) >= start && below(string(c.key), end) {
			by += c.by
		}
	}
	return by
}

// created visits the keys that were created since a revision.
func (r *recent) created(at uint64, visit func(key string)) {
	for i := len(r.changes) - 1; i >= 0 && r.changes[i].revision > at; i-- {
		if c := &r.changes[i]; c.by > 0 {
			visit(string(c.key))
		}
	}
}

// below reports whether a key is below the end of a span; an empty end means no upper end.
func below(key, end string) bool { return end == "" || key < end }

// within reports whether a span's end is at or below another end.
func within(end, other string) bool { return other == "" || end != "" && end <= other }

// lower returns the lower end.
func lower(a, b string) string {
	if within(a, b) {
		return a
	}
	return b
}
