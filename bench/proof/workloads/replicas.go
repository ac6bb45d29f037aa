package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Replicas writes keys, and reads them at any replica. Each writer has its own keys. A read is
// never older than its answer says, nor older than the reader allowed. A client that asks for its
// own writes sees them, and its reads never go back in time. A read at the same timestamp at
// another replica gives the same answer.
type Replicas struct {
	Keyspace string
	Layout   kv.KeyspaceOption
	// Writers is the number of clients that write, with Keys keys each. Readers is the number of
	// clients that read at replicas.
	Writers, Keys, Readers int
	Pause, ReadPause       time.Duration

	mu struct {
		sync.Mutex
		// puts has the acknowledged puts of each key, in order.
		puts map[string][]putAt
		// moments has past reads, which are repeated.
		moments []momentRead
	}
}

// putAt is an acknowledged put, and the time of the acknowledgement.
type putAt struct {
	version kv.Timestamp
	acked   time.Time
}

// momentRead is a read at a timestamp: of one key, or of all keys if key is empty.
type momentRead struct {
	key  string
	at   kv.Timestamp
	saw  string
	when time.Time
}

// mostPuts is the number of puts of a key that are remembered, and mostMoments the number of past
// reads.
const mostPuts, mostMoments = 400, 64

// replicasLag is the distance of the closed timestamp from the present. A read with kv.Nearest may
// be older than kv.NearestStaleness by as much.
const replicasLag = time.Second

const nearPrefix = "near/"

// Name implements Workload.
func (r *Replicas) Name() string { return r.Keyspace }

// Clients implements Workload.
func (r *Replicas) Clients() int { return r.Writers + r.Readers }

// Setup implements Workload.
func (r *Replicas) Setup(ctx context.Context, run *driver.Run) error {
	r.mu.puts = make(map[string][]putAt)
	return run.CreateKeyspace(ctx, r.Keyspace, r.Layout, kv.ClosedLag(replicasLag))
}

func (r *Replicas) key(writer, n int) string {
	return fmt.Sprintf("%s%d/%d", nearPrefix, n, writer)
}

// Drive implements Workload.
func (r *Replicas) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(r.Keyspace)
	if number < r.Writers {
		seen := make(map[string]kv.Timestamp)
		for n := 0; run.Keep(ctx, random, r.Pause); n++ {
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			key := r.key(number, random.IntN(r.Keys))
			if random.IntN(3) == 0 {
				run.Count("own read", r.readOwn(attempt, run, ks.SDK(), key, seen))
			} else {
				at, err := ks.Put(attempt, []byte(key), strconv.AppendInt(nil, int64(n), 10))
				run.Count("near write", err)
				if err == nil {
					r.acked(key, at)
					seen[key] = at
				}
			}
			cancel()
		}
		return
	}
	for run.Keep(ctx, random, r.ReadPause) {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		switch dice := random.IntN(10); {
		case dice < 5:
			key := r.key(random.IntN(r.Writers), random.IntN(r.Keys))
			run.Count("near read", r.read(attempt, run, ks.SDK(), key, random))
		case dice < 7:
			run.Count("near scan", r.scan(attempt, run, ks.SDK(), random))
		default:
			run.Count("near again", r.again(attempt, run, ks.SDK(), random))
		}
		cancel()
	}
}

// acked notes a put that was acknowledged now.
func (r *Replicas) acked(key string, at kv.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	puts := append(r.mu.puts[key], putAt{at, time.Now()})
	if len(puts) > mostPuts {
		puts = puts[len(puts)-mostPuts:]
	}
	r.mu.puts[key] = puts
}

// least returns the newest version of a key that a read must see at least: the newest that was
// acknowledged before by, and that lies at or below at, unless at is zero.
func (r *Replicas) least(key string, by time.Time, at kv.Timestamp) (newest kv.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.puts[key] {
		if p.acked.After(by) {
			break
		}
		if at.IsZero() || p.version.LessEq(at) {
			newest = p.version
		}
	}
	return newest
}

// fresh draws an option for a read at a replica, and how old the answer may be; 0: as old as the
// answer says.
func fresh(random *rand.Rand) (option kv.FreshnessOption, name string, within time.Duration) {
	switch random.IntN(4) {
	case 0:
		return kv.AnyStaleness(), "any staleness", 0
	case 1:
		within = time.Duration(1+random.IntN(5)) * time.Second
		return kv.MaxStaleness(within), "at most " + within.String(), within
	default:
		return kv.Nearest(), "nearest", kv.NearestStaleness + replicasLag
	}
}

// read reads a key at a replica.
func (r *Replicas) read(ctx context.Context, run *driver.Run, ks *kv.Keyspace, key string,
	random *rand.Rand) error {
	option, name, within := fresh(random)
	var info kv.ReadInfo
	began := time.Now()
	before := began // what was acknowledged before this time must be visible
	pair, err := ks.Get(ctx, []byte(key), option, kv.ReadAt(&info))
	if err = driver.IgnoreNotFound(err); err != nil {
		return err
	}
	r.check(run, key, name, pair.Version, before, within, &info)
	r.remember(momentRead{key: key, at: info.At, saw: pair.Version.String()}, random)
	return nil
}

// check checks a version that was read at a replica.
func (r *Replicas) check(run *driver.Run, key, name string, version kv.Timestamp, began time.Time,
	within time.Duration, info *kv.ReadInfo) {
	now := time.Now()
	switch {
	case info.At.IsZero():
		run.Violation("%s: %s, %s: the read does not say when", r.Keyspace, key, name)
		return
	case info.At.Less(version):
		run.Violation("%s: %s, %s: it was read as of %s, and is of %s", r.Keyspace, key, name, info.At,
			version)
	}
	if least := r.least(key, began, info.At); version.Less(least) {
		run.Violation("%s: %s, %s: as of %s it is of %s, and %s had been acknowledged", r.Keyspace, key,
			name, info.At, version, least)
	}
	if within > 0 {
		if least := r.least(key, began.Add(-within), kv.Timestamp{}); version.Less(least) {
			run.Violation("%s: %s, %s: it is of %s, and %s had been acknowledged %s before "+
				"the read began",
				r.Keyspace, key, name, version, least, within)
		}
	}
	if info.Age >= 0 {
		if least := r.least(key, now.Add(-info.Age), kv.Timestamp{}); version.Less(least) {
			run.Violation("%s: %s, %s: it is of %s and %s old, it says, and %s was acknowledged "+
				"before that",
				r.Keyspace, key, name, version, info.Age, least)
		}
	}
}

// readOwn reads a key that this client writes.
func (r *Replicas) readOwn(ctx context.Context, run *driver.Run, ks *kv.Keyspace, key string,
	seen map[string]kv.Timestamp) error {
	pair, err := ks.Get(ctx, []byte(key), kv.ReadYourWrites())
	if err = driver.IgnoreNotFound(err); err != nil {
		return err
	}
	if pair.Version.Less(seen[key]) {
		run.Violation("%s: %s: its client reads %s and had written or read %s", r.Keyspace, key,
			pair.Version, seen[key])
	}
	seen[key] = pair.Version
	return nil
}

// scan reads all keys at replicas.
func (r *Replicas) scan(ctx context.Context, run *driver.Run, ks *kv.Keyspace,
	random *rand.Rand) error {
	option, name, within := fresh(random)
	var info kv.ReadInfo
	began := time.Now()
	found := make(map[string]kv.Timestamp)
	saw := ""
	for pair, err := range ks.Scan(ctx, kv.Prefix([]byte(nearPrefix)), option, kv.ReadAt(&info)) {
		if err != nil {
			return err
		}
		found[string(pair.Key)] = pair.Version
		saw += fmt.Sprintf("%s@%s ", pair.Key, pair.Version)
	}
	for writer := range r.Writers {
		for n := range r.Keys {
			key := r.key(writer, n)
			// The age in the answer refers to the beginning of the scan.
			of := info
			of.Age = -1
			r.check(run, key, "scan, "+name, found[key], began, within, &of)
		}
	}
	r.remember(momentRead{at: info.At, saw: saw}, random)
	return nil
}

// remember keeps a past read; if there are mostMoments, in place of another one.
func (r *Replicas) remember(m momentRead, random *rand.Rand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.when = time.Now()
	if len(r.mu.moments) < mostMoments {
		r.mu.moments = append(r.mu.moments, m)
		return
	}
	r.mu.moments[random.IntN(mostMoments)] = m
}

// again repeats a past read, at any replica.
func (r *Replicas) again(ctx context.Context, run *driver.Run, ks *kv.Keyspace,
	random *rand.Rand) error {
	r.mu.Lock()
	if len(r.mu.moments) == 0 {
		r.mu.Unlock()
		return nil
	}
	m := r.mu.moments[random.IntN(len(r.mu.moments))]
	r.mu.Unlock()
	saw := ""
	if m.key != "" {
		pair, err := ks.Get(ctx, []byte(m.key), kv.At(m.at), kv.Nearest())
		if err = driver.IgnoreNotFound(err); err != nil {
			return ignoreTooOld(err)
		}
		saw = pair.Version.String()
	} else {
		for pair, err := range ks.Scan(ctx, kv.Prefix([]byte(nearPrefix)), kv.At(m.at), kv.Nearest()) {
			if err != nil {
				return ignoreTooOld(err)
			}
			saw += fmt.Sprintf("%s@%s ", pair.Key, pair.Version)
		}
	}
	if saw != m.saw {
		run.Violation("%s: %q as of %s was %s, and is %s when it is read again",
			r.Keyspace, m.key, m.at, m.saw, saw)
	}
	return nil
}

// ignoreTooOld returns nil for the error that a timestamp is older than the kept history.
func ignoreTooOld(err error) error {
	if errors.Is(err, kv.ErrTimestampTooOld) {
		return nil
	}
	return err
}

// Check implements Workload: at the end every key has its last acknowledged value, at any replica
// that is fresh enough.
func (r *Replicas) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	ks := client.Keyspace(r.Keyspace).SDK()
	for writer := range r.Writers {
		for n := range r.Keys {
			key, began := r.key(writer, n), time.Now()
			var info kv.ReadInfo
			pair, err := ks.Get(ctx, []byte(key), kv.MaxStaleness(5*time.Second), kv.ReadAt(&info))
			if err = driver.IgnoreNotFound(err); err != nil {
				return err
			}
			r.check(run, key, "at the end", pair.Version, began, 5*time.Second, &info)
		}
	}
	return nil
}
