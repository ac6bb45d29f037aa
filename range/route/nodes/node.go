package nodes

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// probeBackoff is for pings to a suspected node.
var probeBackoff = backoff.Backoff{Name: "probe", Base: 10 * time.Millisecond,
	Cap: 100 * time.Millisecond, Jitter: 0.3, AtOnce: 1}

// pingTimeout is how long a ping to a suspected node may take.
const pingTimeout = time.Second

// Node is a data node as the sender sees it. It lives as long as the Sender: ids are never reused.
type Node struct {
	of *shared
	ID keys.NodeID
	// Lanes never change.
	Lanes []*Lane

	// incarnation grows whenever the node becomes suspected. Hints of an earlier incarnation are
	// void, which drops all hints to a node at once, however many partitions it leads.
	incarnation atomic.Uint64
	// suspected: its connection broke, or it is silent. It gets pings only.
	suspected atomic.Bool

	// distance is how far away it is by its locality, Latency by time. wanted is the watchdog's
	// tick, from 1, in which a read last looked at it that may go to any replica; pinging: it is
	// being pinged because of that.
	distance atomic.Int32
	Latency  Latency
	wanted   atomic.Uint32
	pinging  atomic.Bool
	pace     pace
	// Owed is how many answers it owes to reads that may go to any replica.
	Owed atomic.Int64

	mu struct {
		sync.Mutex
		address string
		// reason is why it is suspected.
		reason error
		// probing: a goroutine pings it.
		probing bool
	}
}

var (
	errNoAddress = errors.New("its address is not known")
	errSilent    = errors.New("it does not answer")
)

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
func (n *Node) move(address string) {
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

// Incarnation is the number of times that the node has become suspected.
func (n *Node) Incarnation() uint64 { return n.incarnation.Load() }

// Suspected reports whether the node gets pings only.
func (n *Node) Suspected() bool { return n.suspected.Load() }

// Distance is how far away the node is by its locality.
func (n *Node) Distance() Distance { return Distance(n.distance.Load()) }

// Want has the latency of the node measured for a while.
func (n *Node) Want() { n.wanted.Store(n.of.ticks.Load() + 1) }

// AddressAndReason returns the address of the node, and why it is suspected.
func (n *Node) AddressAndReason() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.address, n.mu.reason
}

// hangUp ends the node's streams; what waits for an answer on them is answered with a broken
// stream. The next request opens them anew.
func (n *Node) hangUp() {
	for _, l := range n.Lanes {
		if c := l.conn.Swap(nil); c != nil {
			c.Close()
		}
	}
}

// Suspect marks the node, if it is still in the incarnation that failed, and starts to ping it
// until it answers.
func (n *Node) Suspect(incarnation uint64, reason error) {
	s := n.of
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.incarnation.Load() != incarnation || n.suspected.Load() || s.config.Life.Ended() {
		return
	}
	n.mu.reason = reason
	n.suspected.Store(true)
	n.incarnation.Add(1)
	s.config.Suspected.Inc()
	s.config.Logger.Debug("node is suspected", "node", n.ID, "address", n.mu.address, "reason", reason)
	n.startProbeLocked()
	s.config.Owner.Unreachable(n.mu.address)
}

func (n *Node) startProbeLocked() {
	if !n.mu.probing {
		n.mu.probing = n.of.config.Life.Go(n.probe)
	}
}

// probe pings the node until it answers, leaves the cluster, or the Sender closes. One runs per
// suspected node.
func (n *Node) probe() {
	s := n.of
	for attempt := 0; ; attempt++ {
		err := n.ping(s.config.Life.Context())
		n.mu.Lock()
		n.mu.reason = err
		if err == nil {
			n.mu.probing = false
			n.suspected.Store(false)
			n.mu.Unlock()
			s.config.Suspected.Dec()
			s.config.Logger.Debug("node answers again", "node", n.ID)
			return
		}
		n.mu.Unlock()
		s.config.Logger.Debug("node does not answer a ping", "node", n.ID, "error", err)
		wait := probeBackoff.Delay(attempt, s.random())
		if errors.Is(err, errOtherNode) {
			n.hangUp()
			wait = otherNodePause
		}
		if s.config.Life.Pause(s.config.Life.Context(), wait) != nil {
			return
		}
		n.mu.Lock()
		if !s.config.Owner.Knows(n.ID) {
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
func (n *Node) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := n.Lanes[0].Now(ctx)
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

// ErrNoTime: the node answers, and does not know whether its clock is right.
var ErrNoTime = errors.New("it tells no time")
