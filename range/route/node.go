package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// pingTimeout is how long a ping to a suspected node may take.
const pingTimeout = time.Second

// node is a data node as the sender sees it. It lives as long as the Sender: ids are never reused.
type node struct {
	sender *Sender
	id     keys.NodeID
	lanes  []*lane

	// incarnation grows whenever the node becomes suspected. Hints of an earlier incarnation are
	// void, which drops all hints to a node at once, however many partitions it leads.
	incarnation atomic.Uint64
	// suspected: its connection broke, or it is silent. It gets pings only.
	suspected atomic.Bool

	// distance is how far away it is by its locality, latency by time. wanted is the watchdog's tick,
	// from 1, in which a read last looked at it that may go to any replica; pinging: it is being
	// pinged because of that.
	distance atomic.Int32
	latency  latency
	wanted   atomic.Uint32
	pinging  atomic.Bool
	// owed is how many answers it owes to reads that may go to any replica.
	owed atomic.Int64

	mu struct {
		sync.Mutex
		address string
		// reason is why it is suspected.
		reason error
		// probing: a goroutine pings it.
		probing bool
	}
}

// lane is one stream to a node. Lane i of every node goes by the same client id and has its own
// connections; a request stays in its lane for all attempts.
type lane struct {
	node  *node
	index int
	conn  atomic.Pointer[client.BatchConn]

	// For the watchdog: requests without an answer, by the tick in which they were sent; and
	// answers so far.
	waiting  [tickRing]atomic.Int32
	answered atomic.Uint64
	// Only the watchdog's.
	seen   uint64
	silent int
}

var (
	errNoAddress = errors.New("its address is not known")
	errSilent    = errors.New("it does not answer")
)

func (s *Sender) newNode(id keys.NodeID) *node {
	n := &node{sender: s, id: id}
	for i := range s.lanes {
		n.lanes = append(n.lanes, &lane{node: n, index: i})
	}
	return n
}

// nodeLocked finds or makes a node.
func (s *Sender) nodeLocked(id keys.NodeID) *node {
	n := s.mu.nodes[id]
	if n == nil {
		n = s.newNode(id)
		info := s.mu.contents.nodes[id]
		n.mu.address = addressOf(info)
		n.distance.Store(int32(s.distanceTo(info.GetLocality())))
		s.mu.nodes[id] = n
		s.publishNodesLocked()
	}
	return n
}

// updateAddressesLocked brings addresses up to date.
func (s *Sender) updateAddressesLocked() {
	for id, info := range s.mu.contents.nodes {
		n := s.nodeLocked(id)
		n.distance.Store(int32(s.distanceTo(info.GetLocality())))
		n.move(addressOf(info))
	}
}

// addressOf is where a node is reached; "" if it is not known. Another node is by now where a node
// was whose directory is lost, or that has left the cluster.
//
// INVARIANT: one node at a time is asked at an address. Streams to another one there would have the
// numbers of the same client, and each would fence off the ones before (rpc, streams).
func addressOf(info *clusterpb.Node) string {
	if info.GetDisplaced() || info.GetStatus() == clusterpb.NodeStatus_NODE_GONE {
		return ""
	}
	return info.GetAddress()
}

// move notes the node's address. Streams to an earlier one are ended.
func (n *node) move(address string) {
	n.mu.Lock()
	moved := n.mu.address != address
	n.mu.address = address
	if n.suspected.Load() {
		n.startProbeLocked()
	}
	n.mu.Unlock()
	if moved {
		n.hangUp()
	}
}

func (n *node) addressAndReason() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.address, n.mu.reason
}

// stream returns the lane's BatchConn, which it makes if there is none.
func (l *lane) stream() (*client.BatchConn, error) {
	if c := l.conn.Load(); c != nil {
		return c, nil
	}
	n := l.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := l.conn.Load(); c != nil {
		return c, nil
	}
	if n.sender.life.Ended() {
		return nil, ErrClosed
	}
	if n.mu.address == "" {
		return nil, errNoAddress
	}
	shared := n.sender.lanes[l.index]
	config := client.BatchConfig{
		Dialer:  shared.dialer,
		Address: n.mu.address,
		Client:  shared.client,
		Stream:  func() uint64 { return shared.streams.Add(1) },
		Cluster: n.sender.cluster(),
		Server:  n.sender.cfg.Server,
	}
	if n.sender.identity.Named() {
		config.Token = n.sender.identity.ForStream
	}
	c := client.NewBatchConn(config)
	l.conn.Store(c)
	return c, nil
}

// hangUp ends the node's streams; what waits for an answer on them is answered with a broken
// stream. The next request opens them anew.
func (n *node) hangUp() {
	for _, l := range n.lanes {
		if c := l.conn.Swap(nil); c != nil {
			c.Close()
		}
	}
}

// do sends one request on the lane and waits for its answer.
func (l *lane) do(ctx context.Context, r *kvpb.Request) (*kvpb.Response, error) {
	c, err := l.stream()
	if err != nil {
		return nil, &client.ErrStreamBroken{Cause: err}
	}
	waiting := l.await()
	response, err := c.Do(ctx, r)
	return l.received(waiting, response, err)
}

// awaited is a request that waits for its answer.
type awaited struct {
	tick *atomic.Int32
	// from is when it is sent, if it samples the time.
	from    time.Time
	sampled bool
}

// await notes that a request is about to be sent.
func (l *lane) await() awaited {
	w := awaited{tick: &l.waiting[l.node.sender.ticks.Load()%tickRing]}
	w.from, w.sampled = l.node.sender.Clock.SampleDue(l.node.sender.ticks.Load())
	w.tick.Add(1)
	return w
}

// received takes in the answer to a request, or that there is none.
func (l *lane) received(w awaited, response *kvpb.Response, err error) (*kvpb.Response, error) {
	w.tick.Add(-1)
	if errors.Is(err, client.ErrClosed) {
		// It was given up between stream and Do.
		return nil, &client.ErrStreamBroken{Cause: err}
	}
	if err == nil {
		s := l.node.sender
		l.answered.Add(1)
		s.Clock.Hear(response.Now)
		if w.sampled && !response.ClockUntrusted {
			s.Clock.Sample(wire.FromTimestamp(response.Now), w.from, time.Now())
		}
	}
	return response, err
}

// suspect marks the node, if it is still in the incarnation that failed, and starts to ping it
// until it answers.
func (n *node) suspect(incarnation uint64, reason error) {
	s := n.sender
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.incarnation.Load() != incarnation || n.suspected.Load() || s.life.Ended() {
		return
	}
	n.mu.reason = reason
	n.suspected.Store(true)
	n.incarnation.Add(1)
	s.metrics.suspected.Inc()
	s.log.Debug("node is suspected", "node", n.id, "address", n.mu.address, "reason", reason)
	n.startProbeLocked()
	s.following.leave(n.mu.address)
}

func (n *node) startProbeLocked() {
	if !n.mu.probing {
		n.mu.probing = n.sender.life.Go(n.probe)
	}
}

// probe pings the node until it answers, leaves the cluster, or the Sender closes. One runs per
// suspected node.
func (n *node) probe() {
	s := n.sender
	for attempt := 0; ; attempt++ {
		err := n.ping(s.life.Context())
		n.mu.Lock()
		n.mu.reason = err
		if err == nil {
			n.mu.probing = false
			n.suspected.Store(false)
			n.mu.Unlock()
			s.metrics.suspected.Dec()
			s.log.Debug("node answers again", "node", n.id)
			return
		}
		n.mu.Unlock()
		s.log.Debug("node does not answer a ping", "node", n.id, "error", err)
		wait := probeBackoff.delay(attempt, s.random())
		if errors.Is(err, errOtherNode) {
			n.hangUp()
			wait = otherNodePause
		}
		if s.life.Pause(s.life.Context(), wait) != nil {
			return
		}
		n.mu.Lock()
		if s.table.Load().nodes[n.id] == nil {
			// It left the cluster, and stays suspected; updateAddressesLocked probes it again
			// should it come back.
			n.mu.probing = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
	}
}

// ping asks the node for its time. A ping that is not answered in time ends the streams: they are
// of no use.
func (n *node) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := n.lanes[0].now(ctx)
	if err != nil && ctx.Err() != nil {
		n.hangUp()
		return errSilent
	}
	return err
}

// errOtherNode: another node answers where the node should be. Its clients' streams are not to be
// fenced off by pings, ten times a second (see addressOf).
var errOtherNode = errors.New("another node answers at its address")

// otherNodePause is the time between two pings then.
const otherNodePause = 5 * time.Second

// errNoTime: the node answers, and does not know whether its clock is right.
var errNoTime = errors.New("it tells no time")

// now asks the node for its clock, and makes sure that it is the node it should be.
func (l *lane) now(ctx context.Context) (*kvpb.Timestamp, error) {
	s := l.node.sender
	r := &kvpb.Request{
		Sequence: s.sequence.Add(1),
		Session:  s.Clock.SessionOfRequest(),
		Command:  &kvpb.Request_Now{Now: &kvpb.NowRequest{}},
	}
	response, err := l.do(ctx, r)
	if err != nil {
		return nil, err
	}
	if e := response.Error; e != nil {
		if e.Code == kvpb.ErrorCode_CLOCK_SKEW {
			return nil, fmt.Errorf("%w: %s", errNoTime, e.Message)
		}
		return nil, errors.New(e.Message)
	}
	result := response.GetNowResult()
	if result == nil || response.Now == nil {
		return nil, errors.New("the answer to Now carries no time")
	}
	if result.Node != uint64(l.node.id) {
		return nil, fmt.Errorf("%w: %s", errOtherNode, keys.NodeID(result.Node))
	}
	return response.Now, nil
}
