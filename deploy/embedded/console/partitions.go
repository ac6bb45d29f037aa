package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// partitions returns all partitions, in the order of keyspaces and keys.
func (v *viewer) partitions(ctx context.Context, cluster Cluster) ([]admin.PartitionInfo, error) {
	return v.known.partitions.get(ctx, partitionsAge,
		func(ctx context.Context) ([]admin.PartitionInfo, error) { return cluster.Partitions(ctx, "") })
}

// partitionView is a row of the list of partitions.
type partitionView struct {
	ID       uint64 `json:"id"`
	Keyspace string `json:"keyspace"`
	// Span describes the keys: "hash 3", or "a … b".
	Span     string        `json:"span"`
	Leader   uint64        `json:"leader"`
	Replicas []replicaView `json:"replicas"`
	Keys     uint64        `json:"keys"`
	Bytes    uint64        `json:"bytes"`
	Rates    rates         `json:"rates"`
	// Merging: the partition is about to merge with its left neighbour, and does not serve requests.
	Merging bool `json:"merging,omitempty"`
}

type replicaView struct {
	Node    uint64 `json:"node"`
	Learner bool   `json:"learner,omitempty"`
}

// pageOfPartitions is a page of the list.
type pageOfPartitions struct {
	Total int             `json:"total"`
	From  int             `json:"from"`
	Rows  []partitionView `json:"rows"`
}

// partitionsPage is the number of partitions on a page of the list.
const partitionsPage = 100

// listPartitions is the feed "partitions?keyspace=&order=&from=": a page of partitions. order is
// "key", "reads", "writes", "bytes" or "load".
func listPartitions(ctx context.Context, v *viewer, cluster Cluster, p url.Values) (any, error) {
	all, err := v.partitions(ctx, cluster)
	if err != nil {
		return nil, err
	}
	chosen := make([]*admin.PartitionInfo, 0, len(all))
	keyspace, node := p.Get("keyspace"), number(p, "node", 0)
	for i := range all {
		if (keyspace == "" || all[i].Keyspace == keyspace) &&
			(node == 0 || holds(&all[i], uint64(node))) {
			chosen = append(chosen, &all[i])
		}
	}
	if by := orders[p.Get("order")]; by != nil {
		slices.SortStableFunc(chosen, func(a, b *admin.PartitionInfo) int {
			return cmp.Compare(by(b), by(a))
		})
	}
	page := pageOfPartitions{Total: len(chosen), Rows: []partitionView{}}
	page.From = max(0, min(number(p, "from", 0), len(chosen)-1))
	for _, x := range chosen[page.From:min(page.From+partitionsPage, len(chosen))] {
		page.Rows = append(page.Rows, partitionOf(x))
	}
	return page, nil
}

func holds(p *admin.PartitionInfo, node uint64) bool {
	return slices.ContainsFunc(p.Replicas, func(r admin.ReplicaInfo) bool { return r.Node == node })
}

var orders = map[string]func(*admin.PartitionInfo) float64{
	"reads":  func(p *admin.PartitionInfo) float64 { return float64(p.Minute.Reads) },
	"writes": func(p *admin.PartitionInfo) float64 { return float64(p.Minute.Writes) },
	"bytes":  func(p *admin.PartitionInfo) float64 { return float64(p.SizeBytes) },
	"load":   func(p *admin.PartitionInfo) float64 { return p.Minute.Load },
}

func partitionOf(p *admin.PartitionInfo) partitionView {
	view := partitionView{ID: p.ID, Keyspace: p.Keyspace, Span: spanText(p), Leader: p.Leader,
		Keys: p.LiveKeys, Bytes: p.SizeBytes, Merging: p.FrozenFor != 0}
	view.Rates.add(p.Minute)
	for _, r := range p.Replicas {
		view.Replicas = append(view.Replicas, replicaView{r.Node, r.Learner})
	}
	return view
}

// spanText describes the keys of a partition.
func spanText(p *admin.PartitionInfo) string {
	bound := func(key []byte, hidden bool, none string) string {
		switch {
		case hidden:
			return "(hidden)"
		case len(key) == 0:
			return none
		}
		return keyText(key)
	}
	text := bound(p.Start, p.StartHidden, "first key") + " … " + bound(p.End, p.EndHidden, "last key")
	if p.Hash < 0 {
		return text
	}
	if len(p.Start)+len(p.End) == 0 && !p.StartHidden && !p.EndHidden {
		return fmt.Sprintf("hash %d", p.Hash)
	}
	return fmt.Sprintf("hash %d: %s", p.Hash, text)
}

// number parses a parameter that is a number of at least 0. It returns otherwise if there is none.
func number(p url.Values, name string, otherwise int) int {
	n, err := strconv.Atoi(p.Get(name))
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}

// keyspaceView is a row of the feed "keyspaces".
type keyspaceView struct {
	Name         string `json:"name"`
	Partitioning string `json:"partitioning"`
	Partitions   int    `json:"partitions"`
	Replicas     int    `json:"replicas"`
	State        string `json:"state"`
	WaitingFor   string `json:"waitingFor,omitempty"`
	Placement    string `json:"placement,omitempty"`
	Leaders      string `json:"leaders,omitempty"`
	// GCSeconds is the window of garbage collection. TTLSeconds is the default time to live, or 0.
	GCSeconds  int64  `json:"gcSeconds"`
	TTLSeconds int64  `json:"ttlSeconds,omitempty"`
	CommitWait bool   `json:"commitWait,omitempty"`
	Keys       uint64 `json:"keys"`
	Bytes      uint64 `json:"bytes"`
	Rates      rates  `json:"rates"`
}

// listKeyspaces is the feed "keyspaces".
func listKeyspaces(ctx context.Context, v *viewer, cluster Cluster, _ url.Values) (any, error) {
	keyspaces, err := cluster.Keyspaces(ctx)
	if err != nil {
		return nil, err
	}
	partitions, err := v.partitions(ctx, cluster)
	if err != nil {
		return nil, err
	}
	rows, at := make([]keyspaceView, len(keyspaces)), map[string]*keyspaceView{}
	for i, k := range keyspaces {
		rows[i] = keyspaceView{Name: k.Name, Partitioning: k.Partitioning(),
			Partitions: k.Partitions, Replicas: k.Replicas, State: string(k.State),
			WaitingFor: k.WaitingFor, Placement: k.Placement, Leaders: k.Leaders,
			GCSeconds: int64(k.GCWindow.Seconds()), TTLSeconds: int64(k.DefaultTTL.Seconds()),
			CommitWait: k.CommitWait}
		at[k.Name] = &rows[i]
	}
	for i := range partitions {
		if row := at[partitions[i].Keyspace]; row != nil {
			row.Keys += partitions[i].LiveKeys
			row.Bytes += partitions[i].SizeBytes
			row.Rates.add(partitions[i].Minute)
		}
	}
	slices.SortFunc(rows, func(a, b keyspaceView) int { return cmp.Compare(a.Name, b.Name) })
	return rows, nil
}
