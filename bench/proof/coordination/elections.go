package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Elections runs candidates that lead in turn, proclaim, resign or die, and observers that follow.
// At any true time at most one candidate believes that it leads, apart from errors of clocks
// (drift). Every observer sees each leader, in the order of the leaders' tokens. In calm, when a
// leader dies, the next one leads within its time to live and a second.
type Elections struct {
	Candidates, Observers int
	Pause                 time.Duration

	mu struct {
		sync.Mutex
		leaders map[*coord.Leadership]bool
		// terms has the leaders whose campaigns succeeded, by token. last is the highest token.
		terms map[coord.Token]string
		last  coord.Token
		// died is the time when the last leader died; zero if it is alive or has a successor.
		died time.Time
	}
}

// takeover is the longest time in calm from the death of a leader until another one leads.
const takeover = ttl + time.Second + drift

// Name implements Workload.
func (*Elections) Name() string { return "etcd-elections" }

// Clients implements Workload.
func (e *Elections) Clients() int { return e.Candidates + e.Observers }

// Setup implements Workload.
func (e *Elections) Setup(ctx context.Context, run *driver.Run) error {
	e.mu.leaders = make(map[*coord.Leadership]bool)
	e.mu.terms = make(map[coord.Token]string)
	return available(ctx, run, e.Name())
}

// Drive implements Workload. The first clients are candidates.
func (e *Elections) Drive(ctx context.Context, run *driver.Run, number int, _ *driver.Client,
	random *rand.Rand) {
	for n := 0; run.Rest(ctx, random, e.Pause); n++ {
		client, err := connect(ctx, run, e.Name())
		if err != nil {
			run.Violation("%s: connecting: %v", e.Name(), err)
			return
		}
		if number >= e.Candidates {
			e.observe(ctx, run, client, random)
		} else {
			e.candidate(ctx, run, client, fmt.Sprintf("%d.%d", number, n), random)
		}
		client.hangUp()
	}
}

// candidate campaigns again and again, until its session ends or the candidate dies.
func (e *Elections) candidate(ctx context.Context, run *driver.Run, client connected, name string,
	random *rand.Rand) {
	session, err := begin(ctx, run, client)
	if err != nil {
		return
	}
	for n := 0; session.Err() == nil && ctx.Err() == nil; n++ {
		began := time.Now()
		leadership, err := client.recipes.Election("one").Campaign(ctx, session,
			fmt.Appendf(nil, "%s.%d", name, n))
		if ctx.Err() == nil {
			run.Count("campaign", plain(err))
		}
		if err != nil {
			break
		}
		if !e.lead(ctx, run, client, session, leadership, began,
			fmt.Sprintf("%s.%d", name, n), random) {
			return // the candidate is dead
		}
		if !run.Rest(ctx, random, e.Pause) {
			break
		}
	}
	closeSession(session)
}

// lead leads for a while. It returns false if the leader dies.
func (e *Elections) lead(ctx context.Context, run *driver.Run, client connected,
	session *coord.Session, l *coord.Leadership, began time.Time, name string,
	random *rand.Rand) bool {
	e.begin(ctx, run, l, began, name)
	_ = pause(ctx, time.Duration(random.Int64N(int64(time.Second))))
	if random.IntN(2) == 0 && l.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 5*attemptTimeout)
		ended := client.Report(attempt, "proclaim")
		err := l.Proclaim(attempt, []byte(name+" proclaimed"))
		ended(plain(err))
		run.Count("proclaim", plain(err))
		cancel()
	}
	dies := random.IntN(3) == 0
	if dies {
		client.hangUp() // no more renewals are sent
	}
	before := l.Err()
	e.mu.Lock()
	delete(e.mu.leaders, l)
	if dies && e.mu.last == l.Token() {
		e.mu.died = time.Now()
	}
	e.mu.Unlock()
	if errors.Is(before, coord.ErrLost) {
		run.Violation("%s: the leadership with token %d is gone, and its session is not: %v", e.Name(),
			l.Token(), before)
	}
	if dies {
		closeSession(session)
		return false
	}
	attempt, cancel := context.WithTimeout(ctx, 5*attemptTimeout)
	defer cancel()
	ended := client.Report(attempt, "resign")
	err := l.Resign(attempt)
	if err != nil && before != nil {
		ended(nil) // Resign returns the error that was known before
	} else {
		ended(plain(err))
	}
	run.Count("resign", plain(err))
	return true
}

// begin notes that a candidate leads. began is the time when its campaign began.
func (e *Elections) begin(ctx context.Context, run *driver.Run, l *coord.Leadership,
	began time.Time, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.Token() <= e.mu.last {
		run.Violation("%s: a leader has token %d, and one before it had %d", e.Name(), l.Token(),
			e.mu.last)
	}
	died := e.mu.died
	e.mu.last, e.mu.died = max(e.mu.last, l.Token()), time.Time{}
	e.mu.terms[l.Token()] = name
	if took := time.Since(died); began.Before(died) && took > takeover && run.Weather.Calm(died) {
		run.Violation("%s: in calm the next leader leads %v after the last one died", e.Name(), took)
	}
	enterAlone(ctx, &e.mu.Mutex, e.mu.leaders, l, func(other *coord.Leadership) {
		run.Violation("%s: those with tokens %d and %d lead at the same time", e.Name(), other.Token(),
			l.Token())
	})
}

// observe follows for a while which candidate leads.
func (e *Elections) observe(ctx context.Context, run *driver.Run, client connected,
	random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(5+random.IntN(40))*time.Second)
	defer cancel()
	var seen []coord.Leader
	for leader, err := range client.recipes.Election("one").Observe(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				run.Count("observe", plain(err))
			}
			break
		}
		if n := len(seen); n > 0 && leader.Exists() {
			last := seen[n-1]
			if leader.Token < last.Token || leader.Revision <= last.Revision {
				run.Violation("%s: an observer saw the leader with token %d at revision %d after %d at %d",
					e.Name(), leader.Token, leader.Revision, last.Token, last.Revision)
			}
		}
		if leader.Gap {
			seen = nil // history was compacted meanwhile, so leaders may be missing
		}
		if leader.Exists() {
			seen = append(seen, leader)
		}
	}
	run.Count("observed", nil)
	e.compare(run, seen)
}

// compare compares the leaders that one observer saw with the leaders that there were.
func (e *Elections) compare(run *driver.Run, seen []coord.Leader) {
	if len(seen) == 0 {
		return
	}
	saw := make(map[coord.Token]bool)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, leader := range seen {
		saw[leader.Token] = true
		if name, known := e.mu.terms[leader.Token]; known &&
			!strings.HasPrefix(string(leader.Proposal), name) {
			run.Violation("%s: an observer saw %q lead with token %d, which was %q", e.Name(),
				leader.Proposal, leader.Token, name)
		}
	}
	for token, name := range e.mu.terms {
		if token > seen[0].Token && token < seen[len(seen)-1].Token && !saw[token] {
			run.Violation("%s: an observer from token %d to %d missed the leader %q with token %d",
				e.Name(), seen[0].Token, seen[len(seen)-1].Token, name, token)
		}
	}
}

// Check implements Workload: no candidate that waits or leads may be left.
func (e *Elections) Check(ctx context.Context, run *driver.Run, _ *driver.Client) error {
	client, err := connect(ctx, run, e.Name())
	if err != nil {
		return err
	}
	defer client.hangUp()
	for end := time.Now().Add(takeover); ; {
		r, err := client.SDK().Get(ctx, e.Name()+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if len(r.Kvs) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("all sessions are over, and %s of %d keys is left", r.Kvs[0].Key,
				len(r.Kvs))
		}
		if !pause(ctx, 300*time.Millisecond) {
			return ctx.Err()
		}
	}
}
