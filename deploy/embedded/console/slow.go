package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// slowView is the feed "slow": the requests that nodes remember as slow, the latest first.
type slowView struct {
	Rows  []slowRow  `json:"rows"`
	Nodes []slowNode `json:"nodes"`
	// Unanswered names the nodes that did not answer. It is empty if all did.
	Unanswered string `json:"unanswered,omitempty"`
}

// slowNode describes how a node counts slow requests.
type slowNode struct {
	Node uint64 `json:"node"`
	// ThresholdMicros is the duration from which on a request counts as slow. If it is 0, the node
	// keeps no slow requests.
	ThresholdMicros int64  `json:"thresholdMicros"`
	Count           uint64 `json:"count"`
}

// slowRow is a slow request. Parts add up to Micros.
type slowRow struct {
	Node      uint64     `json:"node"`
	Began     int64      `json:"began"` // Unix milliseconds
	Micros    int64      `json:"micros"`
	Parts     []slowPart `json:"parts"`
	Kind      string     `json:"kind"`
	Keyspace  string     `json:"keyspace"`
	Partition uint64     `json:"partition,omitempty"`
	Key       string     `json:"key"`
	Client    string     `json:"client,omitempty"`
	User      string     `json:"user,omitempty"`
	Error     string     `json:"error,omitempty"`
	// Holder is the transaction that held the lock for which the request waited.
	Holder string `json:"holder,omitempty"`
	Trace  string `json:"trace,omitempty"`
}

type slowPart struct {
	Name   string `json:"name"`
	Micros int64  `json:"micros"`
}

// slowShown is the number of slow requests on a page.
const slowShown = 100

// listSlow asks the nodes for slow requests.
func listSlow(ctx context.Context, _ *viewer, cluster Cluster, p url.Values) (any, error) {
	found, err := cluster.SlowRequests(ctx, admin.SlowQuery{Keyspace: p.Get("keyspace"),
		Limit: slowShown})
	view := slowView{Rows: []slowRow{}, Nodes: []slowNode{}}
	var unanswered *admin.UnansweredNodesError
	switch {
	case errors.As(err, &unanswered) && len(found.Nodes) > 0:
		view.Unanswered = unanswered.Error()
	case err != nil:
		return nil, err
	}
	for _, n := range found.Nodes {
		view.Nodes = append(view.Nodes, slowNode{n.Node, n.Threshold.Microseconds(), n.Count})
	}
	for i := range found.Requests {
		view.Rows = append(view.Rows, slowRowOf(&found.Requests[i]))
	}
	return view, nil
}

func slowRowOf(r *admin.SlowRequest) slowRow {
	row := slowRow{Node: r.Node, Began: unixMillis(r.Began), Micros: r.Took.Microseconds(),
		Parts: []slowPart{}, Kind: r.Kind, Keyspace: r.Keyspace, Partition: r.Partition,
		Key: keyText(r.Key), Client: r.ClientAddress, User: r.User, Error: r.Error,
		Holder: r.Lock.Transaction, Trace: r.Trace}
	if more := r.Keys + r.Spans - 1; more > 0 {
		row.Key += fmt.Sprintf(" and %d more", more)
	}
	for _, p := range r.Parts {
		row.Parts = append(row.Parts, slowPart{p.Name, p.Took.Microseconds()})
	}
	return row
}
