package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// consumerPrefix is the prefix of the names of consumers that protect history for backups.
const consumerPrefix = "backup/"

// cluster implements the cluster for the job of one backup.
type cluster struct {
	*Maker
	backup *clusterpb.Backup

	// mu guards the addresses of nodes. No other lock is taken while it is held.
	mu        sync.Mutex
	addresses map[keys.NodeID]string
}

var _ job.Cluster = (*cluster)(nil)

// Describe implements job.Cluster.
func (c *cluster) Describe(ctx context.Context) (*job.Description, error) {
	core := c.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return nil, err
	}
	partitions := make(map[uint32][]*clusterpb.PartitionInfo)
	if err := core.ListPartitions(ctx, &clusterpb.ListPartitionsRequest{},
		func(p *clusterpb.PartitionInfo) error {
			ks := p.GetPartition().GetKeyspace()
			partitions[ks] = append(partitions[ks], p)
			return nil
		}); err != nil {
		return nil, err
	}
	// An empty change changes nothing, and returns the present settings.
	set, err := core.SetPlacement(ctx, &clusterpb.SetPlacementRequest{})
	if err != nil {
		return nil, err
	}
	settings, err := protojson.Marshal(set.GetSettings())
	if err != nil {
		return nil, err
	}
	d := &job.Description{Cluster: c.clusterID(), Version: c.config.Version,
		Settings: json.RawMessage(settings)}
	for _, info := range all.GetKeyspaces() {
		ks := info.GetKeyspace()
		if ks.GetState() != clusterpb.KeyspaceState_ACTIVE || keys.IsHidden(ks.GetName()) {
			continue // the keyspace has no data yet, or no data that a client can read
		}
		one, err := describe(ks, partitions[ks.GetId()])
		if err != nil {
			return nil, err
		}
		d.Keyspaces = append(d.Keyspaces, one)
	}
	return d, nil
}

// errSplit: the core's table of a keyspace has a hole.
var errSplit = errors.New("the partition table has a hole")

// describe describes a keyspace from its record and its partitions.
func describe(ks *clusterpb.Keyspace, partitions []*clusterpb.PartitionInfo) (job.Keyspace, error) {
	definition, err := protojson.Marshal(ks)
	if err != nil {
		return job.Keyspace{}, err
	}
	one := job.Keyspace{Keyspace: manifest.Keyspace{ID: ks.GetId(), Name: ks.GetName(),
		Definition: json.RawMessage(definition)}}
	if ks.GetPartitioning() == clusterpb.Partitioning_HASH {
		one.Hashed, one.Hashes = true, ks.GetHashPartitions()
	}
	slices.SortFunc(partitions, func(a, b *clusterpb.PartitionInfo) int {
		return strings.Compare(string(a.GetPartition().GetStart()), string(b.GetPartition().GetStart()))
	})
	var end []byte
	for i, info := range partitions {
		p := info.GetPartition()
		if i > 0 && !slices.Equal(p.GetStart(), end) {
			return job.Keyspace{}, fmt.Errorf("%w before partition %d of the keyspace %q", errSplit,
				p.GetId(), ks.GetName())
		}
		end = p.GetEnd()
		part := manifest.Partition{Bytes: info.GetSizeBytes()}
		if i > 0 {
			part.Start = p.GetStart()[min(len(p.GetStart()), keys.KeyspacePrefixLength):]
		}
		for _, r := range p.GetReplicas() {
			part.Nodes = append(part.Nodes, keys.NodeID(r.GetNode()))
		}
		one.Partitions = append(one.Partitions, part)
	}
	if len(partitions) == 0 {
		return job.Keyspace{}, fmt.Errorf("%w: the keyspace %q has no partitions", errSplit,
			ks.GetName())
	}
	return one, nil
}

// Protect implements job.Cluster, by a consumer.
func (c *cluster) Protect(ctx context.Context, keyspace, backup string, from hlc.Timestamp,
	keep time.Duration) error {
	answer, err := c.config.Core().SetConsumer(ctx, &clusterpb.SetConsumerRequest{
		Keyspace: keyspace, Name: consumerPrefix + backup, Position: ts(from), OnlyNew: true,
		KeepMillis: uint64(keep.Milliseconds())})
	if err != nil {
		return err
	}
	if answer.GetConsumer().GetTooOld() {
		return job.ErrTooOld
	}
	return nil
}

// Keep implements job.Cluster and changelog.Cluster, by a consumer.
func (c *cluster) Keep(ctx context.Context, keyspace, id string, from hlc.Timestamp,
	keep time.Duration) error {
	_, err := c.config.Core().SetConsumer(ctx, &clusterpb.SetConsumerRequest{
		Keyspace: keyspace, Name: consumerPrefix + id, Position: ts(from), Reset_: true,
		KeepMillis: uint64(keep.Milliseconds())})
	if status.Code(err) == codes.NotFound {
		return nil // the keyspace was dropped
	}
	return err
}

// Unprotect implements job.Cluster.
func (c *cluster) Unprotect(ctx context.Context, keyspace, backup string) error {
	_, err := c.config.Core().DeleteConsumer(ctx, &clusterpb.DeleteConsumerRequest{
		Keyspace: keyspace, Name: consumerPrefix + backup})
	if status.Code(err) == codes.NotFound {
		return nil // the consumer was dropped with its keyspace
	}
	return err
}

// Nodes implements job.Cluster.
func (c *cluster) Nodes(ctx context.Context) ([]keys.NodeID, error) {
	answer, err := c.config.Core().ListNodes(ctx, &clusterpb.ListNodesRequest{})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses = make(map[keys.NodeID]string)
	var all []keys.NodeID
	for _, n := range answer.GetNodes() {
		if n.GetAlive() && n.GetStatus() != clusterpb.NodeStatus_NODE_GONE {
			all = append(all, keys.NodeID(n.GetId()))
			c.addresses[keys.NodeID(n.GetId())] = n.GetAddress()
		}
	}
	return all, nil
}

// worker connects to a node.
func (c *cluster) worker(node keys.NodeID) (backuppb.WorkerClient, error) {
	c.mu.Lock()
	address := c.addresses[node]
	c.mu.Unlock()
	if address == "" {
		return nil, fmt.Errorf("the address of node %d is not known", node)
	}
	conn, err := c.config.Conn(address)
	if err != nil {
		return nil, err
	}
	return backuppb.NewWorkerClient(conn), nil
}

// dropped checks whether the core still has a keyspace that a node does not know. If it has, the
// returned error is the node's error.
func (c *cluster) dropped(ctx context.Context, ks *manifest.Keyspace, unknown error) error {
	all, err := c.config.Core().ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	for _, info := range all.GetKeyspaces() {
		if info.GetKeyspace().GetId() == ks.ID &&
			info.GetKeyspace().GetState() != clusterpb.KeyspaceState_DROPPING {
			return unknown
		}
	}
	return fmt.Errorf("%w: %q. Make the backup again", job.ErrGone, ks.Name)
}

// fullTarget is the error of a node whose target is full. The target is then full for all nodes.
type fullTarget struct{ error }

func (fullTarget) Unwrap() error { return target.ErrFull }

// ofNode converts an error of a node for a backup or restore. If a node has no capacity for a
// request at present, it has not refused the request permanently.
func ofNode(err error) error {
	switch status.Code(err) {
	case codes.Aborted:
		return fullTarget{errors.New(status.Convert(err).Message())}
	case codes.ResourceExhausted:
		return errors.New(status.Convert(err).Message())
	}
	return err
}
