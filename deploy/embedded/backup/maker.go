package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// timestamp is a timestamp as messages have it.
type timestamp = clusterpb.Timestamp

// consumerPrefix begins the names of the consumers that protect history for backups.
const consumerPrefix = "backup/"

// Core is what a Maker asks of the core. Its methods are those of the core's leader.
type Core interface {
	ListNodes(context.Context, *clusterpb.ListNodesRequest) (*clusterpb.ListNodesResponse, error)
	ListKeyspaces(context.Context,
		*clusterpb.ListKeyspacesRequest) (*clusterpb.ListKeyspacesResponse, error)
	ListPartitions(context.Context, *clusterpb.ListPartitionsRequest,
		func(*clusterpb.PartitionInfo) error) error
	SetConsumer(context.Context,
		*clusterpb.SetConsumerRequest) (*clusterpb.SetConsumerResponse, error)
	DeleteConsumer(context.Context,
		*clusterpb.DeleteConsumerRequest) (*clusterpb.DeleteConsumerResponse, error)
	CreateKeyspace(context.Context,
		*clusterpb.CreateKeyspaceRequest) (*clusterpb.CreateKeyspaceResponse, error)
	DropKeyspace(context.Context,
		*clusterpb.DropKeyspaceRequest) (*clusterpb.DropKeyspaceResponse, error)
	SetPlacement(context.Context,
		*clusterpb.SetPlacementRequest) (*clusterpb.SetPlacementResponse, error)
	// Publish gives keyspaces their names.
	Publish(ctx context.Context, names map[string]string) error
}

// MakerConfig is what a Maker is made of. All fields but Directory must be set.
type MakerConfig struct {
	Core func() Core
	// Coordination returns the state of the coordination store with all that was acknowledged before
	// the call; nil: the cluster has no such store.
	Coordination func(context.Context) (job.Coordination, error)
	// CoordinationStore is the store, as a restore fills it. Directory is where files of it are
	// written; empty: a temporary one.
	CoordinationStore func() (CoordinationStore, error)
	Directory         string
	// Clock says how far the cluster's clocks differ. Nothing goes by the time that it shows.
	Clock *hlc.Clock
	// Conn gives connections that its owner keeps.
	Conn    func(address string) (*grpc.ClientConn, error)
	Cluster func() uint64
	Version string
	Open    func(ctx context.Context, url string) (target.Target, error)
	Random  func() uint64
	Logger  *slog.Logger
}

// Maker implements backups.Maker.
type Maker struct{ config MakerConfig }

var _ backups.Maker = (*Maker)(nil)

// NewMaker makes a Maker.
func NewMaker(config MakerConfig) *Maker { return &Maker{config} }

// Check implements backups.Maker.
func (m *Maker) Check(b *clusterpb.Backup) error {
	if bad := manifest.CheckID(b.GetId()); bad != "" {
		return errors.New(bad)
	}
	if b.GetParent() != "" && b.Parent != backups.Latest && manifest.CheckID(b.Parent) != "" {
		return errors.New(manifest.CheckID(b.Parent))
	}
	for _, pattern := range slices.Concat(b.GetInclude(), b.GetExclude()) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("the pattern %q: %w", pattern, err)
		}
	}
	if r := b.GetRestore(); r != nil {
		if r.GetBackup() != backups.Latest && r.GetBackup() != "" &&
			manifest.CheckID(r.GetBackup()) != "" {
			return errors.New(manifest.CheckID(r.GetBackup()))
		}
		if _, err := identitiesOf(r.GetIdentities()); err != nil {
			return err
		}
	}
	_, err := archive.ParseRecipients(b.GetRecipients()...)
	return err
}

// Latest implements backups.Maker.
func (m *Maker) Latest(ctx context.Context, b *clusterpb.Backup) (string, error) {
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return "", err
	}
	defer store.Close()
	contents, err := catalog.New(store, nil).List(ctx)
	if err != nil {
		return "", err
	}
	own := m.clusterID()
	for _, head := range slices.Backward(contents.Complete.Sorted()) {
		if head.Cluster == own {
			return head.ID, nil
		}
	}
	return "", fmt.Errorf("%s has no complete backup of the cluster %s that could be continued: make "+
		"a full one first", store, own)
}

// Resolve implements backups.Maker.
func (m *Maker) Resolve(ctx context.Context, b *clusterpb.Backup) error {
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	identities, err := identitiesOf(b.Restore.Identities)
	if err != nil {
		return err
	}
	c := catalog.New(store, identities)
	if b.Restore.Backup == backups.Latest {
		contents, err := c.List(ctx)
		if err != nil {
			return err
		}
		all := contents.Complete.Sorted() // of any cluster
		if len(all) == 0 {
			return fmt.Errorf("%s has no complete backup", store)
		}
		b.Restore.Backup = all[len(all)-1].ID
		return nil
	}
	at := wire.FromClusterTimestamp(b.Restore.At)
	if b.Restore.Newest {
		at = catalog.Newest
	}
	found, err := c.Resolve(ctx, at)
	if err != nil {
		return err
	}
	b.Restore.Backup, b.Restore.Log, b.Restore.Newest = found.Backup, found.Log, false
	b.Restore.At = nil
	if found.Log != "" {
		b.Restore.At = ts(found.At)
	}
	return nil
}

// clusterID is the cluster's id as heads have it.
func (m *Maker) clusterID() string { return fmt.Sprintf("%016x", m.config.Cluster()) }

// NewID implements backups.Maker.
func (m *Maker) NewID(now time.Time) string {
	return manifest.NewID(now, uint32(m.config.Random()))
}

// NewIdentity implements backups.Maker.
func (m *Maker) NewIdentity() (string, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// includes says which keyspaces a backup has.
func includes(b *clusterpb.Backup) func(string) bool {
	matches := func(patterns []string, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			ok, err := path.Match(p, name)
			return ok && err == nil
		})
	}
	if len(b.Include) == 0 && len(b.Exclude) == 0 {
		return nil
	}
	return func(name string) bool {
		return (len(b.Include) == 0 || matches(b.Include, name)) && !matches(b.Exclude, name)
	}
}

// Make implements backups.Maker.
func (m *Maker) Make(ctx context.Context, b *clusterpb.Backup,
	progress func(*timestamp, *clusterpb.BackupProgress)) error {
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	spec := job.Spec{ID: b.Id, Kind: manifest.Full, Parent: b.Parent, Includes: includes(b),
		Keep:  time.Duration(b.KeepMillis) * time.Millisecond,
		Began: time.UnixMilli(b.BeganUnixMs), Schedule: b.Schedule,
		ScheduleKeep: time.Duration(b.KeepMillis) * time.Millisecond}
	if b.Parent != "" {
		spec.Kind = manifest.Incremental
	}
	if spec.Recipients, err = archive.ParseRecipients(b.Recipients...); err != nil {
		return err
	}
	if b.Identity != "" {
		if spec.Identity, err = archive.ParseIdentities(b.Identity); err != nil {
			return err
		}
	}
	progress(nil, &clusterpb.BackupProgress{Step: "see that every node reaches the target"})
	c := &cluster{Maker: m, backup: b}
	if err := c.checkTarget(ctx, store); err != nil {
		return err
	}
	_, err = job.Run(ctx, spec, job.Config{Cluster: c, Target: store, Random: m.config.Random,
		Now: time.Now, Progress: func(p job.Progress) {
			progress(ts(p.At), &clusterpb.BackupProgress{Step: p.Step, UnitsDone: uint32(p.Done),
				Units: uint32(p.Units), Records: p.Totals.Records, Bytes: p.Totals.Bytes,
				StoredBytes: p.Totals.Stored, Failures: uint32(p.Failures), LastFailure: p.LastFail})
		}})
	return err
}

// Passing implements backups.Maker.
func (m *Maker) Passing(err error) bool {
	// Each attempt at a full target would leave more there that nobody needs.
	for _, final := range []error{target.ErrRefused, target.ErrFull, target.ErrInvalid,
		target.ErrNotFound, archive.ErrCorrupt, archive.ErrNoIdentity, archive.ErrNewer,
		archive.ErrInvalid, job.ErrTooOld, job.ErrGone, manifest.ErrNewer, manifest.ErrBroken,
		catalog.ErrNoPoint, errRestore} {
		if errors.Is(err, final) {
			return false
		}
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.ResourceExhausted,
		codes.AlreadyExists:
		return false
	}
	return true
}

// Undo implements backups.Maker.
func (m *Maker) Undo(ctx context.Context, b *clusterpb.Backup) error {
	if b.Restore != nil {
		return m.undoRestore(ctx, b)
	}
	all, err := m.config.Core().ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	// The protection ends first: that needs no target.
	c := &cluster{Maker: m, backup: b}
	for _, ks := range all.GetKeyspaces() {
		if err := c.Unprotect(ctx, ks.GetKeyspace().GetName(), b.Id); err != nil {
			return err
		}
	}
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	return job.Cancel(ctx, b.Id, c, store, nil)
}

// cluster is the cluster as the job of one backup knows it.
type cluster struct {
	*Maker
	backup *clusterpb.Backup

	// mu guards the addresses of nodes. It is a leaf.
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
	// An empty change changes nothing, and is answered with what holds.
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
			continue // it has no data yet, or no data that a client can read
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

// describe makes a keyspace of its record and its partitions.
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
		return nil // the keyspace is gone
	}
	return err
}

// Unprotect implements job.Cluster.
func (c *cluster) Unprotect(ctx context.Context, keyspace, backup string) error {
	_, err := c.config.Core().DeleteConsumer(ctx, &clusterpb.DeleteConsumerRequest{
		Keyspace: keyspace, Name: consumerPrefix + backup})
	if status.Code(err) == codes.NotFound {
		return nil // with its keyspace
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

// Export implements job.Cluster.
func (c *cluster) Export(ctx context.Context, node keys.NodeID,
	task *job.Task) (*manifest.Done, error) {
	worker, err := c.worker(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := worker.Export(ctx, &backuppb.ExportRequest{Cluster: c.config.Cluster(),
		Node: uint64(node), Backup: task.Plan.ID, Kind: string(task.Plan.Kind),
		Unit: uint32(task.Number), Keyspace: task.Keyspace.ID, KeyspaceName: task.Keyspace.Name,
		Hashes: task.Keyspace.Hashes, Start: task.Unit.Start, End: task.Unit.End,
		After: ts(task.Keyspace.After.Timestamp), At: ts(task.Plan.At.Timestamp),
		Target: c.backup.Target, Recipients: c.backup.Recipients,
		BytesPerSecond: c.backup.BytesPerSecond})
	if err != nil {
		return nil, err
	}
	done, err := receive(stream, func(uint64, uint64) {})
	switch status.Code(err) {
	case codes.OutOfRange:
		return nil, tooOld(task.Keyspace, err)
	case codes.NotFound:
		return nil, c.dropped(ctx, task.Keyspace, err)
	}
	return done, ofNode(err)
}

// fullTarget is the error of a node whose target is full: it is full for all nodes.
type fullTarget struct{ error }

func (fullTarget) Unwrap() error { return target.ErrFull }

// ofNode is what an error of a node means for a backup or restore. A node that has no room for a
// request at present is not one that has refused it.
func ofNode(err error) error {
	switch status.Code(err) {
	case codes.Aborted:
		return fullTarget{errors.New(status.Convert(err).Message())}
	case codes.ResourceExhausted:
		return errors.New(status.Convert(err).Message())
	}
	return err
}

// dropped finds out whether the core still has a keyspace that a node does not know. The error is
// the node's if it has.
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

// tooOld says what to do about history that was collected before it was read.
func tooOld(ks *manifest.Keyspace, err error) error {
	if ks.After.IsZero() {
		return fmt.Errorf("%w: keyspace %q: the backup has taken longer than its history was kept "+
			"(--keep-history): %v", job.ErrTooOld, ks.Name, err)
	}
	return fmt.Errorf("%w: keyspace %q: what was deleted since the backup before is not known any "+
		"more. Make a full backup, and give the keyspace a longer --gc-window than the time between two "+
		"backups: %v", job.ErrTooOld, ks.Name, err)
}

// checkTarget sees that the target does what it should, writes an object, and has every node that
// is alive read it.
func (c *cluster) checkTarget(ctx context.Context, store target.Target) error {
	if err := target.Probe(ctx, store); err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	object := manifest.CheckName(c.backup.Id)
	content := fmt.Appendf(nil, "%016x", c.config.Random())
	if err := store.Put(ctx, object, content); err != nil {
		return err
	}
	defer func() { _ = store.Delete(ctx, object) }()
	for _, n := range nodes {
		worker, err := c.worker(n)
		if err != nil {
			return err
		}
		if _, err := worker.CheckTarget(ctx, &backuppb.CheckTargetRequest{
			Cluster: c.config.Cluster(), Node: uint64(n), Target: c.backup.Target, Object: object,
			Content: content}); err != nil {
			if status.Code(err) == codes.Unavailable {
				continue // it has just died: others do its work
			}
			return fmt.Errorf("node %d: %w", n, ofNode(err))
		}
	}
	return nil
}
