package coordination

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// change is what a write does to a key.
type change struct {
	key, value string
	deleted    bool
}

func (c change) String() string {
	if c.deleted {
		return c.key + " deleted"
	}
	return c.key + " = " + c.value
}

// pair is the state of a key: as a read found it, or as the changes make it.
type pair struct {
	value                string
	create, mod, version int64
}

// watchWindow is what is known of the keys of one Age.
type watchWindow struct {
	prefix string

	mu sync.Mutex
	// start is a revision before which none of the keys was written; 0: no write has begun.
	start int64
	// told has the changes of each revision: the acknowledged changes, and, after check, also the
	// changes that only watchers saw.
	told map[int64][]change
	// unknown has the changes of writes that have not ended, or ended with an unknown outcome.
	unknown  map[change]bool
	refused  map[change]bool
	segments []*segment
	reads    map[int64]map[string]pair
}

func newWatchWindow(prefix string) *watchWindow {
	return &watchWindow{prefix: prefix, told: make(map[int64][]change),
		unknown: make(map[change]bool), refused: make(map[change]bool),
		reads: make(map[int64]map[string]pair)}
}

// trying notes that a write begins. reached is the highest revision that is known to have been
// reached.
func (x *watchWindow) trying(changes []change, reached int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.start == 0 {
		x.start = reached + 1
	}
	for _, c := range changes {
		if !c.deleted { // values are unique, but deletions look alike
			x.unknown[c] = true
		}
	}
}

func (x *watchWindow) failed(changes []change, unknown bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range changes {
		switch {
		case unknown:
			x.unknown[c] = true
		case !c.deleted:
			delete(x.unknown, c)
			x.refused[c] = true
		}
	}
}

func (x *watchWindow) wrote(revision int64, changes []change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(changes) == 0 {
		return
	}
	for _, c := range changes {
		if !c.deleted {
			delete(x.unknown, c)
		}
	}
	x.told[revision] = append(x.told[revision], changes...)
}

// first returns a revision before which none of the keys was written; 0 if no write is known to
// have happened.
func (x *watchWindow) first() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.told) == 0 {
		return 0
	}
	return x.start
}

// revisionSince draws a revision, from first to a few that do not exist yet; 0 if first is 0.
func (x *watchWindow) revisionSince(random *rand.Rand) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.told) == 0 {
		return 0
	}
	last := x.start
	for revision := range x.told {
		last = max(last, revision)
	}
	return x.start + random.Int64N(last-x.start+4)
}

// maxSegments bounds the number of segments that are kept of a window.
const maxSegments = 200

// watched adds the changes that a watcher received.
func (x *watchWindow) watched(s *segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.segments) == maxSegments {
		x.segments = x.segments[1:]
	}
	x.segments = append(x.segments, s)
}

// readAt adds the result of a read of all keys at a revision.
func (x *watchWindow) readAt(revision int64, r *clientv3.GetResponse) {
	found := make(map[string]pair)
	for _, kv := range r.Kvs {
		found[string(kv.Key)] = pair{string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reads[revision] = found
}

// check compares everything that clients have learned, when no client writes any more. The watchers
// show which writes of unknown outcome took effect. All watchers that could have seen such a write
// have to agree.
func (x *watchWindow) check() (complaints []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	seen := make(map[change]int64)
	for revision, changes := range x.told {
		for _, c := range changes {
			seen[c] = max(seen[c], revision)
		}
	}
	for _, s := range x.segments {
		for _, e := range s.events {
			if at := seen[e.change]; !e.deleted && at != 0 && at != e.revision {
				complaints = append(complaints, fmt.Sprintf("%v was written once, and is told at "+
					"revision %d and at %d", e.change, at, e.revision))
			}
			if slices.Contains(x.told[e.revision], e.change) {
				continue
			}
			if !x.unknown[e.change] {
				what := "no client wrote"
				if x.refused[e.change] {
					what = "a write was refused of"
				}
				complaints = append(complaints, fmt.Sprintf("%s what a watcher was told at revision %d: "+
					"%v", what, e.revision, e.change))
			}
			x.told[e.revision] = append(x.told[e.revision], e.change)
			seen[e.change] = e.revision
		}
	}
	for _, s := range x.segments {
		complaints = append(complaints, x.compare(s)...)
	}
	return append(complaints, x.checkReads()...)
}

// compare compares the changes that a watcher received with all known changes.
func (x *watchWindow) compare(s *segment) (complaints []string) {
	got := make(map[int64][]change)
	for _, e := range s.events {
		got[e.revision] = append(got[e.revision], e.change)
	}
	for revision, changes := range x.told {
		if revision < s.from || revision >= s.next() {
			continue
		}
		want := slices.DeleteFunc(slices.Clone(changes),
			func(c change) bool { return !s.covers(c.key) })
		sortChanges(want)
		sortChanges(got[revision])
		if !slices.Equal(want, got[revision]) {
			complaints = append(complaints, fmt.Sprintf("a watch of %s from %d on was told %v of "+
				"revision %d, which is %v; it has been told all before %d", s.watched(), s.from,
				got[revision], revision, want, s.next()))
		}
	}
	return complaints
}

func sortChanges(all []change) {
	slices.SortFunc(all, func(a, b change) int { return strings.Compare(a.String(), b.String()) })
}

// checkReads compares reads of old revisions with the changes up to those revisions. A write of
// unknown outcome that no watcher saw has had no effect, because one watcher has received all
// changes from the first revision that was not compacted.
func (x *watchWindow) checkReads() (complaints []string) {
	for _, at := range slices.Sorted(maps.Keys(x.reads)) {
		state := make(map[string]pair)
		for _, revision := range slices.Sorted(maps.Keys(x.told)) {
			if revision > at {
				break
			}
			for _, c := range x.told[revision] {
				p := state[c.key]
				if c.deleted {
					delete(state, c.key)
					continue
				}
				if p.version == 0 {
					p.create = revision
				}
				state[c.key] = pair{c.value, p.create, revision, p.version + 1}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(x.reads[at])) {
			got, want := x.reads[at][key], state[key]
			if x.vagueLocked(at) {
				// Deletions may be unknown, so the creation revision and the version are not
				// compared.
				want.create, want.version = got.create, got.version
				if want.mod == 0 {
					continue
				}
			}
			if got != want {
				complaints = append(complaints, fmt.Sprintf("a read at revision %d has found %+v of %s, "+
					"and the changes up to it make %+v", at, got, key, want))
			}
			delete(state, key)
		}
		if len(state) > 0 && !x.vagueLocked(at) {
			complaints = append(complaints, fmt.Sprintf("a read at revision %d has not found %+v", at,
				state))
		}
	}
	return complaints
}

// vagueLocked says whether there may be unknown changes up to a revision: changes of writes of
// unknown outcome that were made before the last watcher began, or that it has not reached.
func (x *watchWindow) vagueLocked(at int64) bool {
	if len(x.unknown) == 0 || len(x.segments) == 0 {
		return false
	}
	whole := x.segments[len(x.segments)-1]
	return whole.key != "" || whole.from > x.start || whole.next() <= at
}
