package keycount

// change is that a key was created (by 1) or deleted (by -1).
type change struct {
	revision uint64
	key      []byte
	by       int
}

// recent are the newest changes, by ascending revision: all above floor.
type recent struct {
	changes     []change
	bytes       int
	floor, head uint64
}

// add notes a change, and forgets the oldest ones if they are too many.
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

// covers says whether it is known what has changed since a revision.
func (r *recent) covers(at uint64) bool { return at >= r.floor && at <= r.head }

// since is by how much the number of keys of a span has changed since a revision.
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

// below says whether a key comes before the end of a span; an empty end is none.
func below(key, end string) bool { return end == "" || key < end }

// within says whether a span that ends at one end goes no further than another one.
func within(end, other string) bool { return other == "" || end != "" && end <= other }

// lower is the end that comes first.
func lower(a, b string) string {
	if within(a, b) {
		return a
	}
	return b
}
