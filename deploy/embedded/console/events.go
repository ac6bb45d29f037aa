package console

import (
	"context"
	"net/url"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// eventView is a row of the feed "events".
type eventView struct {
	Number    uint64 `json:"number"`
	At        int64  `json:"at"` // Unix milliseconds
	Kind      string `json:"kind"`
	Partition uint64 `json:"partition,omitempty"`
	Keyspace  string `json:"keyspace,omitempty"`
	From      uint64 `json:"from,omitempty"`
	To        uint64 `json:"to,omitempty"`
	Leader    uint64 `json:"leader,omitempty"`
	Reason    string `json:"reason"`
	Outcome   string `json:"outcome"`
	Millis    int64  `json:"millis"`
	Bytes     uint64 `json:"bytes,omitempty"`
	Rejected  string `json:"rejected,omitempty"`
	// Before and After are the score that the operator should improve, before and after.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// eventsShown is the number of events on a page.
const eventsShown = 200

// listEvents is the feed "events?partition=&node=": the events of placement, newest first.
func listEvents(ctx context.Context, _ *viewer, cluster Cluster, p url.Values) (any, error) {
	events, err := cluster.Events(ctx, uint64(number(p, "partition", 0)),
		uint64(number(p, "node", 0)), eventsShown)
	if err != nil {
		return nil, err
	}
	rows := make([]eventView, 0, len(events))
	for _, e := range events {
		rows = append(rows, eventOf(e))
	}
	return rows, nil
}

func eventOf(e admin.Event) eventView {
	return eventView{Number: e.Number, At: unixMillis(e.At), Kind: e.Kind, Partition: e.Partition,
		Keyspace: e.Keyspace, From: e.From, To: e.To, Leader: e.Leader, Reason: e.Reason,
		Outcome: e.Outcome, Millis: e.Took.Milliseconds(), Bytes: e.Bytes, Rejected: e.Rejected,
		Before: e.ScoreBefore, After: e.ScoreAfter}
}
