package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// SlowQuery selects slow requests. The zero value selects all.
type SlowQuery struct {
	// Keyspace selects the requests of one keyspace; empty: of all.
	Keyspace string
	// Node selects the requests that one node has answered. 0 selects all nodes.
	Node uint64
	// After selects requests that were answered after this time, by the nodes' clocks.
	After time.Time
	// Least selects requests that took at least this long.
	Least time.Duration
	// Limit limits the number of returned requests to the latest ones. 0 means no limit.
	Limit int
	// Redact asks for hashes in the place of keys. The nodes then do not send the keys.
	Redact bool
}

// SlowRequests are the requests that nodes remember as slow.
type SlowRequests struct {
	// Requests are the slow requests, the latest first.
	Requests []SlowRequest
	// Nodes are the nodes that have answered, in the order of their ids.
	Nodes []SlowNode
}

// SlowNode describes how a node counts slow requests.
type SlowNode struct {
	Node uint64
	// Threshold is the duration from which on a request counts as slow. If it is 0, the node keeps no
	// slow requests.
	Threshold time.Duration
	// Count is the number of slow requests since the node was started. A node remembers its newest
	// 256, and the 64 slowest of the last hour.
	Count uint64
}

// SlowRequest is a slow request, as reported by the node that has answered it.
type SlowRequest struct {
	Node uint64
	// Began is the time at which the request arrived at the node, by the clock of the node's machine.
	// Took is the time from then until the answer was sent. Parts are the parts of this time: they add
	// up to Took.
	Began time.Time
	Took  time.Duration
	Parts []RequestPart
	// Kind is the command, such as "get" or "prepare".
	Kind     string
	Keyspace string
	// Partition is 0 for a read of several partitions of the node.
	Partition uint64
	// Key is the first key of the request, or the start of its first span, cut to 128 bytes. KeyBytes
	// is the length of the whole key. If the query asks for it, KeyHash is set instead of Key: equal
	// keys have equal hashes at one node, until the node is restarted.
	Key      []byte
	KeyBytes int
	KeyHash  uint64
	// Keys and Spans are the numbers of keys and spans in the request.
	Keys, Spans int
	// RequestBytes and ResponseBytes are the sizes of the request and of its answer.
	RequestBytes, ResponseBytes uint64
	// Client is the client's number, ClientAddress the address from which it was connected, and User
	// its user. The texts are "" if they are not known.
	Client              uint64
	ClientAddress, User string
	// Error is the code of the request's error, such as "deadline_exceeded". It is "" if the request
	// succeeded.
	Error string
	// Lock is the last lock that the request waited for. Its Transaction is "" if the request waited
	// for no lock.
	Lock RequestLock
	// Trace is the id of the trace that the request belongs to, or "".
	Trace string
}

// RequestPart is the time that a request spent in one part of its processing: queue, latch (other
// requests of the partition), lock, proof (of leadership, or of a closed timestamp), evaluate, log,
// sync, replicate, apply, or clock (commit wait).
type RequestPart struct {
	Name string
	Took time.Duration
}

// RequestLock is a lock that a request waited for.
type RequestLock struct {
	// Transaction is the id of the transaction that held the lock.
	Transaction string
	// Key and KeyHash have the same meanings as in SlowRequest.
	Key     []byte
	KeyHash uint64
}

// UnansweredNodesError names the nodes that did not answer.
type UnansweredNodesError struct {
	// Nodes has at least one error, each with Node.
	Nodes []*kv.Error
}

// Error returns the number of nodes, and the error of the first.
func (e *UnansweredNodesError) Error() string {
	if len(e.Nodes) == 1 {
		return fmt.Sprintf("a node did not answer: %v", e.Nodes[0])
	}
	return fmt.Sprintf("%d nodes did not answer; the first: %v", len(e.Nodes), e.Nodes[0])
}

// Unwrap makes errors.Is and errors.As find the Nodes.
func (e *UnansweredNodesError) Unwrap() []error {
	all := make([]error, len(e.Nodes))
	for i, n := range e.Nodes {
		all[i] = n
	}
	return all
}

// SlowRequests asks the nodes for the slow requests that they remember. The user needs the right to
// administer each keyspace in the query. If nodes do not answer, the error wraps an
// UnansweredNodesError, and the answers of the other nodes are returned with it. Nodes of earlier
// releases do not answer.
func (c *Client) SlowRequests(ctx context.Context, q SlowQuery) (SlowRequests, error) {
	const op = "slow requests"
	if q.Limit < 0 {
		return SlowRequests{}, invalid(op, q.Keyspace, "a limit of %d requests", q.Limit)
	}
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	names, err := keyspaceNames(ctx, c, op, q.Keyspace)
	if err != nil {
		return SlowRequests{}, err
	}
	ask := &kvpb.SlowRequestsRequest{Max: uint32(min(q.Limit, 1<<31-1)), Redact: q.Redact,
		LeastNanos: uint64(max(q.Least, 0))}
	if !q.After.IsZero() {
		ask.After = uint64(max(q.After.UnixNano(), 0))
	}
	for id := range names {
		ask.Keyspaces = append(ask.Keyspaces, uint64(id))
	}
	nodes := []keys.NodeID{keys.NodeID(q.Node)}
	if q.Node == 0 {
		nodes = c.conn.Sender.NodeIDs()
	}
	var out SlowRequests
	var unanswered []*kv.Error
	var mu sync.Mutex
	_ = conn.InParallel(ctx, len(nodes), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		response, err := c.conn.Sender.DoAtNode(ctx, nodes[i],
			&kvpb.Request{Command: &kvpb.Request_SlowRequests{SlowRequests: ask}})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			var e *kv.Error
			errors.As(c.conn.Wrap(op, q.Keyspace, err), &e)
			e.Node = uint64(nodes[i])
			unanswered = append(unanswered, e)
			return nil // the answers of the other nodes are still useful
		}
		out.add(uint64(nodes[i]), names, response.GetSlowRequests())
		return nil
	})
	out.sort(q.Limit)
	if len(unanswered) > 0 {
		slices.SortFunc(unanswered, func(a, b *kv.Error) int { return cmp.Compare(a.Node, b.Node) })
		e := &UnansweredNodesError{Nodes: unanswered}
		return out, kv.NewError(op, q.Keyspace, e.Error(), e)
	}
	return out, nil
}

// keyspaceNames returns the names of keyspaces by their ids: of one keyspace, or of all if the name
// is empty.
func keyspaceNames(ctx context.Context, c *Client, op, keyspace string) (
	map[keys.KeyspaceID]string, error) {
	if keyspace != "" {
		ks, err := c.conn.Resolve(ctx, keyspace)
		if err != nil {
			return nil, c.conn.Wrap(op, keyspace, err)
		}
		return map[keys.KeyspaceID]string{ks.ID: keyspace}, nil
	}
	infos, err := c.Keyspaces(ctx)
	names := make(map[keys.KeyspaceID]string, len(infos))
	for _, info := range infos {
		names[keys.KeyspaceID(info.ID)] = info.Name
	}
	return names, err
}

func (s *SlowRequests) add(node uint64, names map[keys.KeyspaceID]string,
	r *kvpb.SlowRequestsResponse) {
	s.Nodes = append(s.Nodes, SlowNode{Node: node, Count: r.GetCount(),
		Threshold: time.Duration(r.GetThresholdNanos())})
	for _, x := range r.GetRequests() {
		one := SlowRequest{Node: node, Began: time.Unix(0, int64(x.Began)),
			Took: time.Duration(x.TotalNanos), Kind: x.Kind,
			Keyspace: names[keys.KeyspaceID(x.Keyspace)], Partition: x.Partition,
			Key: x.Key, KeyBytes: int(x.KeyBytes), KeyHash: x.KeyHash,
			Keys: int(x.Keys), Spans: int(x.Spans), RequestBytes: x.RequestBytes,
			ResponseBytes: x.ResponseBytes, Client: x.Client, ClientAddress: x.ClientAddress,
			User: x.User, Trace: hex.EncodeToString(x.Trace),
			Lock: RequestLock{Transaction: x.LockTransaction, Key: x.LockKey, KeyHash: x.LockKeyHash}}
		if x.Failed {
			one.Error = strings.ToLower(x.Error.String())
		}
		for _, p := range x.Parts {
			one.Parts = append(one.Parts, RequestPart{p.Name, time.Duration(p.Nanos)})
		}
		s.Requests = append(s.Requests, one)
	}
}

// sort puts the latest requests first, and drops the requests beyond a limit.
func (s *SlowRequests) sort(limit int) {
	slices.SortFunc(s.Nodes, func(a, b SlowNode) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortStableFunc(s.Requests, func(a, b SlowRequest) int { return b.Began.Compare(a.Began) })
	if limit > 0 && len(s.Requests) > limit {
		clear(s.Requests[limit:])
		s.Requests = s.Requests[:limit]
	}
}
