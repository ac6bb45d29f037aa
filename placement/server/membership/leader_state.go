package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// candidateAge is the time for which a server counts as a candidate after its last announcement.
	candidateAge = 10 * time.Second
	// maxCandidates limits the number of remembered candidates.
	maxCandidates = 64
	// nearlyAll is the maximum number of entries that a member may lack when it becomes a voter or
	// takes the leadership. It receives them within a moment.
	nearlyAll = 64
)

// coreChanges is the leader's volatile state of changes of the core's members.
type coreChanges struct {
	// poked wakes the stepper. Capacity 1.
	poked chan struct{}

	mu struct {
		sync.Mutex
		candidates map[uint64]candidate
		// step is the last step, taken or waiting, as the leader of a term. The time since which the step
		// is the same follows.
		step     roster.Step
		stepTerm uint64
		since    time.Time
	}
	// fenced has a term and a version of the members. In that term, an entry after the one with that
	// version of the members is known to be committed. Only the stepper uses it.
	fenced [2]uint64
	// informed is the time at which silent nodes were last told the members. next is the node to
	// continue with. Only the stepper uses them.
	informed time.Time
	next     int
	// said is the last logged text about a change. Only the stepper uses it.
	said string
}

type candidate struct {
	address, version string
	at               time.Time
}

func (c *coreChanges) init() {
	c.poked = make(chan struct{}, 1)
	c.mu.candidates = map[uint64]candidate{}
}

func (c *coreChanges) poke() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

// offer records a server that offers itself.
func (c *coreChanges) offer(r *clusterpb.AnnounceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked()
	if _, ok := c.mu.candidates[r.Server]; ok || len(c.mu.candidates) < maxCandidates {
		c.mu.candidates[r.Server] = candidate{r.Address, r.Version, time.Now()}
	}
}

func (c *coreChanges) expireLocked() {
	for id, x := range c.mu.candidates {
		if time.Since(x.at) > candidateAge {
			delete(c.mu.candidates, id)
		}
	}
}

// offering lists the servers that offer themselves, without present and former members.
func (c *coreChanges) offering(member func(server uint64) bool) []*clusterpb.CoreCandidate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked()
	var list []*clusterpb.CoreCandidate
	for id, x := range c.mu.candidates {
		if !member(id) {
			list = append(list, &clusterpb.CoreCandidate{Server: id, Address: x.address,
				Version: x.version})
		}
	}
	slices.SortFunc(list, func(a, b *clusterpb.CoreCandidate) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Server, b.Server))
	})
	return list
}

func (c *coreChanges) setStep(term uint64, s roster.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.mu.step
	if before.Text != s.Text || before.Waits != s.Waits || c.mu.stepTerm != term {
		c.mu.since = time.Now()
	}
	c.mu.step, c.mu.stepTerm = s, term
}

// stepAge returns for how long the last step has been the same. It returns 0 if there was no step.
func (c *coreChanges) stepAge() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.since.IsZero() {
		return 0
	}
	return time.Since(c.mu.since)
}

func (c *coreChanges) lastStep() roster.Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.step
}

// progress asks the group for the progress of the other members. It returns nil if this member does
// not lead.
func (s *Membership) progress(ctx context.Context) map[keys.ReplicaID]group.Progress {
	return s.progressOf(ctx, s.config.Group)
}

// progressOf does the same for either of the two groups of the core's members.
func (s *Membership) progressOf(ctx context.Context, of Group) map[keys.ReplicaID]group.Progress {
	found := make(chan map[keys.ReplicaID]group.Progress, 1)
	of.Followers(func(p map[keys.ReplicaID]group.Progress) { found <- p })
	select {
	case p := <-found:
		return p
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return nil
}

// answersCore reports whether a member was heard recently.
func (s *Membership) answersCore(id uint64, progress map[keys.ReplicaID]group.Progress) bool {
	p, ok := progress[keys.ReplicaID(id)]
	if !ok || !p.Active {
		return false
	}
	return !s.config.Peers.Down(id)
}

// behind describes what a member lacks.
func behind(p group.Progress, applied uint64) string {
	switch {
	case p.Match == 0:
		return "it has nothing yet"
	case p.Snapshot:
		return "a snapshot is on its way"
	case p.Match+nearlyAll < applied:
		return fmt.Sprintf("it has the log up to %d of %d", p.Match, applied)
	}
	return ""
}

// loadGoal reads the present change of the core's members and the revision of its record. It
// returns nil if there is no change.
func loadGoal(v *store.View) (*serverpb.CoreGoal, uint64, error) {
	g := &serverpb.CoreGoal{}
	revision, err := meta.Load(v, []byte(meta.CoreGoalKey), g)
	if err != nil || revision == 0 {
		return nil, 0, err
	}
	return g, revision, nil
}

// helloTimeout is the time that a server has to answer with its identity.
const helloTimeout = 2 * time.Second

// hello asks the server at an address for its identity.
func (s *Membership) hello(ctx context.Context, address string) (*clusterpb.BootstrapHello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return s.config.Servers.Hello(ctx, address)
}
