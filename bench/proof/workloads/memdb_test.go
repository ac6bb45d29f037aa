package workloads

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// weakness is a way in which a memDB is weaker than a strictly serialisable database.
type weakness int

const (
	strict weakness = iota
	// snapshotIsolation: only writes of the same key conflict.
	snapshotIsolation
	// lostUpdates: no transactions conflict.
	lostUpdates
	// readCommitted: every read sees the latest commits, and only writes of the same key conflict.
	readCommitted
	// dirtyReads: writes of an update are visible before it commits, and some updates do not
	// commit.
	dirtyReads
	// staleSnapshots: views read an older state.
	staleSnapshots
	// twoSites: a commit is visible at its own site at once, and at the other site later (parallel
	// snapshot isolation).
	twoSites
	// lateVisibility: some commits become visible some time after their acknowledgement, others at
	// once.
	lateVisibility
	// lostCommits: some commits are lost.
	lostCommits
	// doubledCommits: some updates are executed twice.
	doubledCommits
	// phantoms: scans do not conflict with writes into their span.
	phantoms
	// falseAborts: some commits are reported as failed.
	falseAborts
	// shiftingPast: a read of the past sees later commits.
	shiftingPast
)

// memDB is a database in memory: versions by commit number, updates validated when they commit.
type memDB struct {
	weak weakness
	// site is the client's site, 0 or 1.
	site   int
	shared *memStore
}

type memStore struct {
	mu       sync.Mutex
	random   *rand.Rand
	last     int64 // number of the last commit
	versions map[string][]memVersion
	// visible has the times at which a commit becomes visible at each site, if not at once.
	visible map[int64][2]time.Time
	commits map[int64]time.Time
}

type memVersion struct {
	commit  int64
	value   []byte
	deleted bool
	dirty   bool
}

func newMemDB(w weakness) *memDB {
	return &memDB{weak: w, shared: &memStore{random: rand.New(rand.NewPCG(1, 2)),
		versions: make(map[string][]memVersion),
		visible:  make(map[int64][2]time.Time), commits: make(map[int64]time.Time)}}
}

// client returns another client's view of the database.
func (d *memDB) client(number int) *memDB { return &memDB{d.weak, number % 2, d.shared} }

// pause waits as long as a request takes.
func (s *memStore) pause(ctx context.Context) error {
	s.mu.Lock()
	d := time.Duration(s.random.IntN(2000)) * time.Microsecond
	s.mu.Unlock()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *memStore) oneOf(n int) bool { return s.random.IntN(n) == 0 }

type memTx struct {
	db       *memDB
	snapshot int64 // the number of the last commit that the transaction sees
	late     bool  // sees only commits that are visible by now
	began    time.Time
	reads    map[string]bool
	prefixes []string
	writes   map[string]*memVersion
	order    []string
}

var errConflict = errors.New("conflict")

func commitTimestamp(n int64) kv.Timestamp { return kv.Timestamp{Wall: 1000 + n} }

func (d *memDB) begin(snapshot int64) *memTx {
	return &memTx{db: d, snapshot: snapshot, began: time.Now(), reads: make(map[string]bool),
		writes: make(map[string]*memVersion)}
}

func (d *memDB) lastCommit() int64 {
	d.shared.mu.Lock()
	defer d.shared.mu.Unlock()
	return d.shared.last
}

// Update implements Transactor.
func (d *memDB) Update(ctx context.Context, f func(driver.Tx) error) (kv.Timestamp, error) {
	for {
		if err := d.shared.pause(ctx); err != nil {
			return kv.Timestamp{}, err
		}
		tx := d.begin(d.lastCommit())
		if err := f(tx); err != nil {
			tx.undo()
			return kv.Timestamp{}, err
		}
		if err := d.shared.pause(ctx); err != nil {
			tx.undo()
			return kv.Timestamp{}, err
		}
		at, err := tx.commit()
		if errors.Is(err, errConflict) {
			tx.undo()
			continue
		}
		return commitTimestamp(at), err
	}
}

// View implements Transactor.
func (d *memDB) View(ctx context.Context, f func(driver.Tx) error) (kv.Timestamp, error) {
	if err := d.shared.pause(ctx); err != nil {
		return kv.Timestamp{}, err
	}
	at := d.lastCommit()
	if d.weak == staleSnapshots {
		at = d.ago(100 * time.Millisecond)
	}
	tx := d.begin(at)
	tx.late = d.weak == twoSites || d.weak == lateVisibility
	return commitTimestamp(at), f(tx)
}

// ago returns the number of the last commit at an age.
func (d *memDB) ago(age time.Duration) int64 {
	d.shared.mu.Lock()
	defer d.shared.mu.Unlock()
	at := d.shared.last
	for at > 0 && time.Since(d.shared.commits[at]) < age {
		at--
	}
	return at
}

// ViewAt implements Transactor.
func (d *memDB) ViewAt(ctx context.Context, at kv.Timestamp, f func(driver.Tx) error) error {
	if err := d.shared.pause(ctx); err != nil {
		return err
	}
	snapshot := at.Wall - 1000
	if at.Logical != 0 { // the timestamp directly below the next commit
		snapshot = at.Wall - 1000
	}
	if d.weak == shiftingPast {
		snapshot++
	}
	return f(d.begin(snapshot))
}

// get returns the version that the transaction sees.
func (tx *memTx) get(key string) *memVersion {
	if own := tx.writes[key]; own != nil {
		return own
	}
	s := tx.db.shared
	versions := s.versions[key]
	for i := len(versions) - 1; i >= 0; i-- {
		v := &versions[i]
		switch {
		case v.dirty && tx.db.weak == dirtyReads:
			return v
		case v.dirty:
			continue
		case v.commit > tx.snapshot && tx.db.weak != readCommitted:
			continue
		case tx.late && tx.began.Before(s.visible[v.commit][tx.db.site]):
			continue
		}
		return v
	}
	return nil
}

// Get implements Tx.
func (tx *memTx) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := tx.db.shared.pause(ctx); err != nil {
		return nil, err
	}
	s := tx.db.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.reads[string(key)] = true
	v := tx.get(string(key))
	if v == nil || v.deleted {
		return nil, kv.ErrNotFound
	}
	return v.value, nil
}

// Scan implements Tx.
func (tx *memTx) Scan(ctx context.Context, prefix []byte) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		s := tx.db.shared
		if err := s.pause(ctx); err != nil {
			yield(kv.Pair{}, err)
			return
		}
		s.mu.Lock()
		if tx.db.weak != phantoms {
			tx.prefixes = append(tx.prefixes, string(prefix))
		}
		keys := make(map[string]bool)
		for key := range s.versions {
			keys[key] = true
		}
		for key := range tx.writes {
			keys[key] = true
		}
		var pairs []kv.Pair
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if v := tx.get(key); strings.HasPrefix(key, string(prefix)) && v != nil && !v.deleted {
				pairs = append(pairs, kv.Pair{Key: []byte(key), Value: v.value,
					Version: commitTimestamp(v.commit)})
			}
		}
		s.mu.Unlock()
		for _, pair := range pairs {
			if !yield(pair, nil) {
				return
			}
		}
	}
}

// Put implements Tx.
func (tx *memTx) Put(key, value []byte) error {
	tx.write(string(key), &memVersion{value: slices.Clone(value)})
	return nil
}

// Delete implements Tx.
func (tx *memTx) Delete(key []byte) error {
	tx.write(string(key), &memVersion{deleted: true})
	return nil
}

func (tx *memTx) write(key string, v *memVersion) {
	tx.writes[key] = v
	tx.order = append(tx.order, key)
	if tx.db.weak != dirtyReads {
		return
	}
	s := tx.db.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty := *v
	dirty.dirty = true
	s.versions[key] = append(s.versions[key], dirty)
}

// undo removes dirty versions.
func (tx *memTx) undo() {
	s := tx.db.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.undoLocked()
}

func (tx *memTx) undoLocked() {
	s := tx.db.shared
	for key, own := range tx.writes {
		s.versions[key] = slices.DeleteFunc(s.versions[key],
			func(v memVersion) bool { return v.dirty && string(v.value) == string(own.value) })
	}
}

// conflicts says whether another commit conflicts with the reads or writes of the transaction.
func (tx *memTx) conflicts() bool {
	s := tx.db.shared
	weak := tx.db.weak
	if weak == lostUpdates {
		return false
	}
	for key, versions := range s.versions {
		last := int64(0)
		for _, v := range versions {
			if !v.dirty {
				last = max(last, v.commit)
			}
		}
		if last <= tx.snapshot {
			continue
		}
		read := tx.reads[key] || slices.ContainsFunc(tx.prefixes,
			func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if weak == snapshotIsolation || weak == readCommitted || weak == twoSites {
			read = false
		}
		if read || tx.writes[key] != nil && weak != readCommitted {
			return true
		}
	}
	return false
}

func (tx *memTx) commit() (int64, error) {
	s := tx.db.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.undoLocked()
	weak := tx.db.weak
	if tx.conflicts() || weak == dirtyReads && s.oneOf(4) {
		return 0, errConflict
	}
	times := 1
	if weak == doubledCommits && s.oneOf(10) {
		times = 2
	}
	for range times {
		s.last++
		s.commits[s.last] = time.Now()
		switch later := time.Now().Add(50 * time.Millisecond); {
		case weak == twoSites && tx.db.site == 0:
			s.visible[s.last] = [2]time.Time{{}, later}
		case weak == twoSites:
			s.visible[s.last] = [2]time.Time{later, {}}
		case weak == lateVisibility && s.oneOf(3):
			s.visible[s.last] = [2]time.Time{later, later}
		}
		if weak == lostCommits && s.oneOf(20) {
			continue
		}
		for key, v := range tx.writes {
			v := *v
			if times == 2 {
				v.value = tx.again(key, v.value)
			}
			v.commit = s.last
			s.versions[key] = append(s.versions[key], v)
		}
	}
	if weak == falseAborts && s.oneOf(20) {
		return 0, kv.ErrOverloaded
	}
	return s.last, nil
}

// again returns the value of a write when its update is executed for the second time: an append
// appends again.
func (tx *memTx) again(key string, value []byte) []byte {
	v := tx.db.shared.versions[key]
	if len(v) == 0 || !strings.HasPrefix(key, "dependency") {
		return value
	}
	elements := strings.Fields(string(value))
	return []byte(strings.TrimPrefix(string(v[len(v)-1].value)+" "+elements[len(elements)-1], " "))
}
