package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/lifecycle"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Format is the format of surveys and plans.
const Format = 1

// Survey is the state of one node.
type Survey struct {
	Format int `json:"format"`
	// Cluster and Server are 16 hexadecimal digits.
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	Node    uint64 `json:"node"`
	// Nodes are all nodes that this node knew of, itself included.
	Nodes []uint64 `json:"nodes"`
	// Table has the partitions as the core listed them last, as far as this node has heard.
	Table []Partition `json:"table"`
	// Replicas are those of this node.
	Replicas []Replica `json:"replicas"`
}

// Partition is a descriptor.
type Partition struct {
	Partition   uint64   `json:"partition"`
	Keyspace    uint32   `json:"keyspace"`
	Span        string   `json:"span"`
	Generation  uint64   `json:"generation"`
	Membership  uint64   `json:"membership"`
	NextReplica uint64   `json:"next_replica"`
	Members     []Member `json:"members"`
}

// Member is a replica in a descriptor.
type Member struct {
	Replica uint64     `json:"replica"`
	Node    uint64     `json:"node"`
	Role    group.Role `json:"role"`
}

// Replica is a replica on a node.
type Replica struct {
	Partition uint64 `json:"partition"`
	Replica   uint64 `json:"replica"`
	// Broken is why the replica cannot be used; empty if it can.
	Broken string `json:"broken,omitempty"`
	// Descriptor is the descriptor at the end of the replica's log.
	Descriptor Partition `json:"descriptor"`
	// Known is the descriptor that the replica knows to be committed, with which it starts. Changes
	// of the replicas in its log behind that may be committed or not. It is absent in surveys of
	// earlier versions.
	Known *Partition `json:"known,omitempty"`
	// LastIndex and LastTerm are those of the last entry of its log.
	LastIndex uint64 `json:"last_index"`
	LastTerm  uint64 `json:"last_term"`
	// Committed is the index of the last entry that it knows to be committed, Applied that of the
	// last entry in its state.
	Committed uint64 `json:"committed"`
	Applied   uint64 `json:"applied"`
	LiveKeys  uint64 `json:"live_keys"`
	// Digest changes when the log or the vote changes.
	Digest string `json:"digest"`
}

// Directory is the data of a stopped node.
type Directory struct {
	Cluster, Server uint64
	Node            keys.NodeID
	Log             *engine.Log
	State           *engine.State
	// Logger logs work that takes long; may be nil.
	Logger *slog.Logger
}

// partitionOf returns the Partition of a descriptor.
func partitionOf(d *clusterpb.Partition) Partition {
	p := Partition{Partition: d.GetId(), Keyspace: d.GetKeyspace(),
		Span:       keys.PartitionSpan(d).String(),
		Generation: d.GetGeneration(), Membership: d.GetMembership(), NextReplica: d.GetNextReplica()}
	c := group.ConfigurationOf(d)
	for _, m := range c.Members {
		p.Members = append(p.Members, Member{uint64(m.Replica), m.Host, m.Role})
		p.NextReplica = max(p.NextReplica, uint64(m.Replica)+1)
	}
	return p
}

// configuration returns the configuration of a Partition.
func (p *Partition) configuration() group.Configuration {
	var c group.Configuration
	for _, m := range p.Members {
		c.Members = append(c.Members,
			group.Member{Replica: keys.ReplicaID(m.Replica), Host: m.Node, Role: m.Role})
	}
	return c
}

// Read makes the survey of a node.
func Read(d Directory) (*Survey, error) {
	s := &Survey{Format: Format, Cluster: hexID(d.Cluster), Server: hexID(d.Server),
		Node: uint64(d.Node), Nodes: []uint64{uint64(d.Node)}}
	table, err := table.Read(d.Log, d.Cluster)
	if err != nil {
		return nil, err
	}
	for _, p := range table.Partitions() {
		s.Table = append(s.Table, partitionOf(p))
		for _, r := range p.GetReplicas() {
			s.Nodes = append(s.Nodes, r.GetNode())
		}
	}
	for _, n := range table.Nodes() {
		if n.GetStatus() != clusterpb.NodeStatus_NODE_GONE {
			s.Nodes = append(s.Nodes, n.GetId())
		}
	}
	err = d.withLog(func(here *splitrecovery.Directory, identities []raftlog.Identity) error {
		for _, id := range identities {
			r := readReplica(here, id)
			for _, m := range r.Descriptor.Members {
				s.Nodes = append(s.Nodes, m.Node)
			}
			s.Replicas = append(s.Replicas, r)
		}
		return nil
	})
	slices.Sort(s.Nodes)
	s.Nodes = slices.Compact(s.Nodes)
	return s, err
}

func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }

// withLog calls do with the log and the state, and with the replicas that are there and are not
// being removed.
func (d *Directory) withLog(do func(*splitrecovery.Directory, []raftlog.Identity) error) error {
	removed, err := lifecycle.ReadRemovals(d.Log)
	if err != nil {
		return err
	}
	log, err := raftlog.Open(d.Log, raftlog.Options{OnAppended: func([]*raftlog.Append, error) {}})
	if err != nil {
		return err
	}
	defer log.Close()
	all, err := log.Identities()
	if err != nil {
		return err
	}
	var live []raftlog.Identity
	for _, id := range all {
		if !id.Removed && !removed[id.Group] {
			live = append(live, id)
		}
	}
	// A partition that another one has consumed is a part of that.
	here := &splitrecovery.Directory{Log: log, State: d.State}
	left, err := here.Left(live)
	if err != nil {
		return err
	}
	here.Hold(left)
	return do(here, left)
}

// readReplica reads the state of one replica.
func readReplica(here *splitrecovery.Directory, id raftlog.Identity) Replica {
	r := Replica{Partition: uint64(id.Group), Replica: uint64(id.Replica)}
	if err := inspect(here, id, &r); err != nil {
		r.Broken = err.Error()
	}
	return r
}

func inspect(here *splitrecovery.Directory, id raftlog.Identity, r *Replica) error {
	now := &clusterpb.Partition{}
	recorded, found, err := storage.ReadRecorded(here.State, id.Group)
	switch {
	case err != nil:
		return err
	case found:
		now = recorded.Descriptor
	default:
		if err := proto.Unmarshal(id.Descriptor, now); err != nil {
			return fmt.Errorf("its descriptor in the raft log: %w", err)
		}
		if len(id.Voters) == 0 {
			now.Replicas = nil // the replica was to be filled
		}
	}
	applied, err := here.Applied(id)
	if err != nil {
		return err
	}
	r.Applied, r.LiveKeys = applied.Index, recorded.Stats.LiveKeys
	g, err := here.Log.OpenGroup(id, func() raftlog.Applied { return applied })
	if err != nil {
		return err
	}
	defer here.Log.CloseGroup(g)
	hard, _, err := g.InitialState()
	if err != nil {
		return err
	}
	if r.LastIndex, err = g.LastIndex(); err != nil {
		return err
	}
	if r.LastTerm, err = g.Term(r.LastIndex); err != nil {
		return err
	}
	r.Committed = hard.GetCommit()
	known := now
	err = splitrecovery.EachEntry(g, applied.Index, r.LastIndex, func(e group.Entry) error {
		if !e.Change {
			return nil
		}
		next, err := storage.DescriptorIn(id.Group, e.Data)
		if err == nil && next != nil {
			now = next
			if e.Index <= r.Committed {
				known = next
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(now.Replicas) == 0 {
		return errors.New("it is empty: it was to be filled by a snapshot, which has not come")
	}
	r.Descriptor = partitionOf(now)
	if len(known.Replicas) > 0 {
		started := partitionOf(known)
		r.Known = &started
	}
	r.Digest = digest(r, hard)
	return nil
}

// digest is a hash over everything that a plan relies on.
func digest(r *Replica, hard *raftpb.HardState) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %d %d %d", r.Partition, r.Replica, r.LastIndex,
		r.LastTerm, hard.GetTerm(), hard.GetVote()))
	return hex.EncodeToString(sum[:8])
}
