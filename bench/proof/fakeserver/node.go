package fakeserver

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Node is a server of a Cluster.
type Node struct {
	ID            uint64
	Host, Address string
	// Skew is the offset of its physical clock, in nanoseconds.
	Skew  atomic.Int64
	Clock *Clock
	// Region and Zone are the node's location.
	Region, Zone string
	// Lag is how much its replicas of partitions that it does not lead lag behind other followers.
	// Closed, if not nil, returns the closed timestamp of such a replica.
	Lag    time.Duration
	Closed func(p *Partition) hlc.Timestamp
	// Behind is the time after which the node has applied what a leader has written.
	Behind time.Duration
	// Hangs: the node accepts requests and answers none.
	Hangs bool
	// As, if not 0, is the node id that the node reports instead of its own.
	As uint64
	// Timeless is the number of answers in which the node will say that it does not know the time.
	Timeless int
	// Answer, if not nil when the node starts, serves all requests instead of the Store.
	Answer func(r *kvpb.Request) *kvpb.Response

	cluster *Cluster
	// lastClosed has closed timestamps by partition.
	lastClosed map[uint64]hlc.Timestamp

	server *rpc.Server
	served chan struct{}
	clusterpb.UnimplementedClusterServer
}

// skewed is the physical clock of a node.
type skewed struct{ n *Node }

// Now implements hlc.Physical.
func (s skewed) Now() int64 { return time.Now().UnixNano() + s.n.Skew.Load() }

// Start starts a node that was killed.
func (n *Node) Start() {
	listener, err := n.cluster.Network.Listen(n.Address)
	if err != nil {
		n.cluster.TB.Fatal(err)
	}
	n.server = rpc.NewServer(rpc.ServerConfig{})
	n.server.ServeClients(rpc.NewBatchServer(rpc.BatchServerConfig{
		Handle:  n.handle,
		Cluster: func() uint64 { return clusterID },
	}))
	clusterpb.RegisterClusterServer(n.server, n)
	n.served = make(chan struct{})
	go func(s *rpc.Server, l net.Listener, served chan struct{}) {
		defer close(served)
		_ = s.Serve(l)
	}(n.server, listener, n.served)
}

// Kill ends the node like kill -9: connections are reset, and nothing listens.
func (n *Node) Kill() {
	n.cluster.Network.DropHost(n.Host)
	n.server.Stop()
	<-n.served
}

// Drop resets the connections of clients to the node.
func (n *Node) Drop() {
	var clients []string
	n.cluster.Set(func() { clients = slices.Collect(maps.Keys(n.cluster.clients)) })
	for _, client := range clients {
		n.cluster.Network.Drop(client, n.Host)
	}
}

// Hang sets Hangs.
func (n *Node) Hang(hangs bool) { n.cluster.Set(func() { n.Hangs = hangs }) }

// handle serves requests one at a time, as a real node would.
func (n *Node) handle(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	c := n.cluster
	if n.Answer == nil {
		c.Set(func() {
			kinds := make(map[string]bool)
			for _, r := range batch {
				kinds[KindOf(r)] = true
			}
			for kind := range kinds {
				c.Messages[kind]++
			}
		})
	}
	for _, r := range batch {
		answer := n.serve(client, r)
		if answer == nil || n.waits(client, r, answer, reply) {
			continue
		}
		answer.Id = r.Id
		if c.Heard != nil {
			c.Heard(n, r, answer)
		}
		reply(answer)
	}
}

// KindOf returns the name of a request's command, such as "put". A MultiGet counts as several
// requests "batchget".
func KindOf(r *kvpb.Request) string {
	if r.GetMultiGet() != nil {
		return "batchget"
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", r.Command), "*kvpb.Request_"))
}

// serve serves a request. It returns nil if the request gets no answer.
func (n *Node) serve(client uint64, r *kvpb.Request) *kvpb.Response {
	if n.Answer != nil {
		return n.Answer(r)
	}
	if r.GetMultiGet() != nil {
		return n.serveMany(client, r)
	}
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Requests[KindOf(r)]++
	if n.Hangs {
		return nil
	}
	_ = n.Clock.Update(wire.FromTimestamp(r.Session))
	if _, now := r.Command.(*kvpb.Request_Now); now {
		if n.Timeless > 0 {
			n.Timeless--
			return Refusal(kvpb.ErrorCode_CLOCK_SKEW, "its clock has just been set")
		}
		return n.dated(&kvpb.Response{Result: &kvpb.Response_NowResult{NowResult: &kvpb.NowResponse{
			Node: cmp.Or(n.As, n.ID)}}})
	}
	var f Fault
	if c.Script != nil {
		f = c.Script(n, r)
	}
	switch {
	case f.Code != 0:
		refusal := Refusal(f.Code, "scripted "+f.Code.String())
		refusal.Error.NotExecuted = f.NotExecuted
		return refusal
	case f.Swallow:
		return nil
	case f.BreakBefore:
		go n.Drop()
		return nil
	}
	var answer *kvpb.Response
	if r.GetMergeScan() != nil {
		answer = n.mergeLocked(client, r)
	} else {
		answer = n.routeLocked(client, r)
	}
	switch {
	case f.BreakAfter:
		go n.Drop()
		return nil
	case f.Unknown:
		return Refusal(kvpb.ErrorCode_OUTCOME_UNKNOWN, "scripted unknown outcome")
	}
	return n.dated(answer)
}

// dated adds the node's time to an answer.
func (n *Node) dated(answer *kvpb.Response) *kvpb.Response {
	answer.Now = wire.ToTimestamp(n.Clock.Told())
	return answer
}

// routeLocked executes a request if the node leads its partition, in the term and generation of the
// request.
func (n *Node) routeLocked(client uint64, r *kvpb.Request) *kvpb.Response {
	c := n.cluster
	p := c.Partitions[r.Partition]
	if p == nil || !slices.ContainsFunc(p.Desc.Replicas,
		func(x *clusterpb.Replica) bool { return x.Node == n.ID }) {
		return Refusal(kvpb.ErrorCode_PARTITION_NOT_FOUND, "no such partition here")
	}
	if r.Generation != p.Desc.Generation {
		return c.staleLocked(p)
	}
	if r.ReplicaRead != nil && p.Leader != n.ID {
		if r.ReplicaRead.Admission != nil {
			return n.admittedReadLocked(p, r)
		}
		return n.replicaReadLocked(p, r)
	}
	// A write without a term asks which node leads.
	if p.Leader != n.ID || r.Term != p.Term && (IsWrite(r) || r.Term != 0) {
		refused := Refusal(kvpb.ErrorCode_NOT_LEADER, "not the leader")
		if p.Leader != 0 {
			refused.Error.Leader = &clusterpb.Leader{Partition: r.Partition, Node: p.Leader,
				Term: p.Term}
		}
		return refused
	}
	if r.TimeoutMicros > uint64(time.Hour/time.Microsecond) {
		c.TB.Errorf("a timeout of %d µs", r.TimeoutMicros)
	}
	if r.Term != 0 {
		c.checkKeysLocked(p, r)
	}
	answer, wait := c.Execute(p, n.Clock, client, r)
	if wait {
		c.TB.Errorf("locks do not wait behind nodes")
		return Refusal(kvpb.ErrorCode_LOCKED, "a lock is in the way")
	}
	if r.ReplicaRead != nil && answer.Error == nil {
		answer.ReadAt = readTold(answer)
	}
	if r.Admit && answer.Error == nil {
		return n.admission(answer)
	}
	return answer
}
