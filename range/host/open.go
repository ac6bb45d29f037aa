package host

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host/applyqueue"
	"github.com/tidemarkdb/tidemark/range/host/closing"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// New opens the log and makes a host that does nothing before Start.
func New(c Config) (*Host, error) {
	if err := c.ensureDefaults(); err != nil {
		return nil, err
	}
	h := &Host{config: c, epoch: c.reading()}
	h.incarnation = c.Random()
	h.snapshots = snapshotSender{host: h, slots: make(chan struct{}, maxSnapshots)}
	h.wakes.groups = &h.registry
	h.mu.groups = make(map[keys.PartitionID]*Group)
	h.sleepers = sleepers{leading: closing.NewLeading(), following: closing.NewFollowing(h.sleeper)}
	h.peers.Init()
	h.inboxes.limit = c.MaxInboxBytes
	h.metrics = newMetrics(c.Registerer)
	h.registerGauges(c.Registerer)
	promise, lease := c.promiseDuration(), c.leaseDuration()
	h.clocks = clockhealth.New(clockhealth.Config{
		Clock: c.Clock, Now: h.now, LeaseDuration: lease,
		LeaseSlack:      clockhealth.Slack(c.Clock.MaxOffset(), promise, lease),
		ElectionTimeout: c.electionTimeout(), Peers: h.peers.Count,
	})
	h.ctx, h.cancel = context.WithCancel(context.Background())
	var err error
	h.log, err = raftlog.Open(c.Log, raftlog.Options{
		OnAppended: h.onAppended, Monotonic: c.Monotonic, Logger: c.Logger,
		Registerer: c.Registerer,
	})
	if err != nil {
		return nil, err
	}
	h.apply = applyqueue.New[task, []group.Entry](c.ApplyWorkers, c.FollowersApplyAfter)
	for range c.Shards {
		h.shards = append(h.shards, newShard(h))
	}
	return h, nil
}

// Start starts the workers. Groups opened before make a burst of work less than groups opened
// after.
func (h *Host) Start(t Transport) {
	h.transport = t
	h.started.Store(true)
	for _, s := range h.shards {
		h.tasks.Add(1)
		go s.run()
	}
	h.apply.Start()
	h.tasks.Add(1)
	go h.tickLoop()
}

// Close stops all work. Proposals in flight end with an unknown outcome; a caller that waits for a
// read index gets ErrStopped. The transport must deliver nothing more once Close has been called.
func (h *Host) Close() {
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return
	}
	h.mu.closed = true
	h.mu.Unlock()
	groups := h.all()
	h.cancel()
	for _, s := range h.shards {
		s.stop()
	}
	h.tasks.Wait()
	h.log.Close()
	h.apply.Stop()
	for _, g := range groups {
		g.shutDown()
	}
}

// GroupConfig describes a replica to be opened.
type GroupConfig struct {
	Identity raftlog.Identity
	// Hosts gives the host of each replica, this one included, with which the group was founded.
	// Only state machines that do not store their configuration (group.Configured) need it.
	Hosts map[keys.ReplicaID]uint64
	// New says that this process has created the replica, which has therefore never voted and may
	// vote at once.
	New bool
	// Founder and TellCommits: see group.Config.
	Founder, TellCommits bool
	// Open makes the state machine; the handle may be kept, but not used before Open has returned.
	Open func(*Group) (group.StateMachine, error)
}

// Open opens a group whose identity Log().Create has written. It starts asleep.
func (h *Host) Open(c GroupConfig) (*Group, error) {
	id := c.Identity.Group
	g := &Group{host: h, identity: c.Identity, founded: group.Founded(c.Hosts)}
	g.inbox.budget, g.stopped = &h.inboxes, make(chan struct{})
	g.addresses.init(h.config.Self, &h.peers)
	g.applier.group = g
	g.applier.queue.Init(h.apply, &g.applier)
	sm, err := c.Open(g)
	if err != nil {
		return nil, err // it says what it is of
	}
	g.machine, g.closes.group = sm, g
	g.closes.closer, _ = sm.(group.Closer)
	index, term := sm.Applied()
	members := g.machineConfiguration()
	g.setApplied(index, term, &members)
	if g.storage, err = h.log.OpenGroup(c.Identity, g.appliedState); err != nil {
		return nil, err
	}
	if !c.New {
		alone, err := g.alwaysAlone(&members, index)
		if err != nil {
			h.log.CloseGroup(g.storage)
			return nil, err
		}
		g.restarted = !alone
	}
	g.core, err = group.New(group.Config{
		ID: id, Self: g.Self(), Storage: g.storage, Applied: index, Configuration: members,
		ElectionTicks: h.config.ElectionTicks, LeaseDuration: h.config.leaseDuration(),
		PromiseDuration: h.config.promiseDuration(), MaySleep: g.closes.sleep,
		Founder: c.Founder, TellCommits: c.TellCommits, Logger: h.config.Logger,
	})
	if err != nil {
		h.log.CloseGroup(g.storage)
		return nil, err
	}
	g.reconfigured()
	g.lease = lease{g.core.Lease(), h.clocks, h.now, h.config.leaseDuration()}
	initial := g.core.Leadership()
	g.leadership.Store(&initial)
	if hard, _, err := g.storage.InitialState(); err == nil {
		g.committed.Store(hard.GetCommit())
	}
	g.core.FallAsleep()

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil, ErrStopped
	}
	if h.mu.groups[id] != nil {
		return nil, fmt.Errorf("group %s is open already", id)
	}
	g.ctx, g.cancel = context.WithCancel(h.ctx)
	g.shard = h.shards[h.mu.next%len(h.shards)]
	h.mu.next++
	h.mu.groups[id] = g
	g.count(true)
	h.metrics.groups.Inc()
	h.hearPendingVotes(g)
	return g, nil
}

// Remove stops a group and waits until none of its work is in flight. The log and the state stay:
// the caller destroys the state and then calls Log().Remove, in this order, so that a crash between
// the two leaves a replica that can be opened and removed again.
func (h *Host) Remove(g *Group) {
	h.mu.Lock()
	if h.mu.groups[g.ID()] == g {
		delete(h.mu.groups, g.ID())
		g.count(false)
		h.metrics.groups.Dec()
	}
	h.mu.Unlock()
	h.following.Changed(g.ID(), true)
	g.stopAndWait()
	h.log.CloseGroup(g.storage)
}
