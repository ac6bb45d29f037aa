package coordination

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// told is a change that a watcher received.
type told struct {
	change
	revision int64
}

// segment has the changes that one watcher received.
type segment struct {
	prefix string
	// key is the only watched key; empty: all keys with the prefix are watched.
	key  string
	from int64
	// complete is the revision up to which the watcher has received every change; 0: it has
	// received nothing yet.
	complete int64
	events   []told
}

// watched returns the watched key or prefix.
func (s *segment) watched() string {
	if s.key != "" {
		return s.key
	}
	return s.prefix
}

func (s *segment) covers(key string) bool {
	return s.key == key || s.key == "" && strings.HasPrefix(key, s.prefix)
}

// next is the first revision whose changes the watcher may still receive.
func (s *segment) next() int64 { return max(s.from, s.complete+1) }

// take adds a response, and says what is wrong with it. compacted is the highest revision to which
// a compaction was requested. A change need not have the previous pair of its key if the change is
// not above compacted.
func (s *segment) take(r clientv3.WatchResponse, compacted int64) (why string) {
	if r.IsProgressNotify() {
		// A progress notification below the first revision of the watch proves nothing.
		s.complete = max(s.complete, r.Header.Revision)
		return ""
	}
	next, last := s.next(), int64(0)
	for _, e := range r.Events {
		at := e.Kv.ModRevision
		c := change{key: string(e.Kv.Key), value: string(e.Kv.Value),
			deleted: e.Type == clientv3.EventTypeDelete}
		switch {
		case at < next:
			why = fmt.Sprintf("%v at revision %d comes late: it had been told everything before %d", c,
				at, next)
		case at < last:
			why = fmt.Sprintf("%v at revision %d comes after revision %d", c, at, last)
		case at > r.Header.Revision:
			why = fmt.Sprintf("%v at revision %d comes with a header of revision %d", c, at,
				r.Header.Revision)
		case !s.covers(c.key):
			why = fmt.Sprintf("%v is none of its keys", c)
		case e.PrevKv == nil && e.Kv.Version != 1 && at > compacted,
			e.PrevKv != nil && (e.Kv.Version == 1 || e.PrevKv.ModRevision >= at ||
				string(e.PrevKv.Key) != c.key):
			why = fmt.Sprintf("%v at revision %d, version %d, has the previous pair %v; "+
				"history was compacted up to %d at most", c, at, e.Kv.Version, e.PrevKv, compacted)
		}
		last = at
		s.events = append(s.events, told{c, at})
	}
	s.complete = max(s.complete, last)
	return why
}
