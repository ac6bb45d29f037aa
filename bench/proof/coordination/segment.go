package coordination

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// told is a change that a watcher was told.
type told struct {
	change
	revision int64
}

// segment is what one watcher was told.
type segment struct {
	prefix string
	// key, if there is one, is the only key that is watched.
	key  string
	from int64
	// complete is the revision up to which it was told everything, 0: it was told nothing yet.
	complete int64
	events   []told
}

// watched is what is watched: a key, or a prefix.
func (s *segment) watched() string {
	if s.key != "" {
		return s.key
	}
	return s.prefix
}

func (s *segment) covers(key string) bool {
	return s.key == key || s.key == "" && strings.HasPrefix(key, s.prefix)
}

// next is the first revision of which it may be told something.
func (s *segment) next() int64 { return max(s.from, s.complete+1) }

// take takes what the watcher is told next, and says what is wrong with it. compacted is the
// highest revision to which a compaction was asked for: what keys were below it need not be told
// any more.
func (s *segment) take(r clientv3.WatchResponse, compacted int64) (why string) {
	if r.IsProgressNotify() {
		// That a watch has everything up to a revision before its first says nothing.
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
