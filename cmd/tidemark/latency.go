package main

import (
	"context"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// latencies lists the latency of each node from here.
func (a *app) latencies(ctx context.Context, client *kv.Client) error {
	nodes, err := admin.New(client).NodeLatencies(ctx)
	if err != nil {
		return err
	}
	list := a.list(output.Column{Name: "node", Number: true},
		output.Column{Name: "address"}, output.Column{Name: "region"}, output.Column{Name: "zone"},
		output.Column{Name: "near"}, output.Column{Name: "latency", Number: true},
		output.Column{Name: "problem", Sentences: true})
	for _, n := range nodes {
		var latency, problem any
		if n.Latency > 0 {
			latency = n.Latency
		}
		if n.Err != nil {
			problem = n.Err.Error()
		}
		list.Row(n.Node, n.Address, orNone(n.Region), orNone(n.Zone), nearness(n), latency, problem)
	}
	return list.Flush()
}

// nearness says whether a node is in the same zone or region as this program.
func nearness(n admin.NodeLatency) any {
	switch {
	case n.SameZone:
		return "same zone"
	case n.SameRegion:
		return "same region"
	}
	return nil
}
