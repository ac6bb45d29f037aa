package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"filippo.io/age"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// timestamp is the type of timestamps in messages.
type timestamp = clusterpb.Timestamp

// ts converts a timestamp for a message. It returns nil if the timestamp is not set.
func ts(t hlc.Timestamp) *timestamp {
	if t.IsZero() {
		return nil
	}
	return wire.ToClusterTimestamp(t)
}

// Core is the part of the core that a Maker uses. Its methods are those of the core's leader.
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
	// Publish renames keyspaces from their hidden names to their final names, if the restore is still
	// under way.
	Publish(ctx context.Context, restore string, names map[string]string) error
}

// CoordinationStore is a member's part of the coordination store, for a restore to fill.
type CoordinationStore struct {
	Store    *store.Store
	Services *etcdapi.Services
}

// MakerConfig configures a Maker. All fields but Directory must be set.
type MakerConfig struct {
	Core func() Core
	// Coordination returns the state of the coordination store with everything that was acknowledged
	// before the call. It returns nil if the cluster has no such store.
	Coordination func(context.Context) (job.Coordination, error)
	// CoordinationStore returns the store that a restore fills. Directory is the directory for its
	// files. If it is empty, a temporary directory is used.
	CoordinationStore func() (CoordinationStore, error)
	Directory         string
	// Clock gives the maximum difference between the cluster's clocks. Its time is not used.
	Clock *hlc.Clock
	// Conn returns connections. The Maker does not close them.
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

// clusterID returns the cluster's id in the form of heads.
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
		newest, err := contents.Newest() // perhaps a backup of another cluster
		if err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
		b.Restore.Backup = newest.ID
		return nil
	}
	at := wire.FromClusterTimestamp(b.Restore.At)
	if b.Restore.Newest {
		at = catalog.Newest
	}
	wants := includes(b)
	if b.Restore.NoKeyspaces {
		wants = catalog.NoKeyspaces
	}
	found, err := c.Resolve(ctx, at, wants)
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

// Passing implements backups.Maker.
func (m *Maker) Passing(err error) bool {
	// Each further attempt would leave more useless data in a full target.
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

// errRestore is wrapped by errors after which a restore can never succeed.
var errRestore = errors.New("it cannot be restored")

// includes returns a predicate for the keyspaces of a backup.
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

// identitiesOf parses identities. It returns none if the text is empty.
func identitiesOf(text string) (archive.Identities, error) {
	if text == "" {
		return nil, nil
	}
	return archive.ParseIdentities(text)
}
