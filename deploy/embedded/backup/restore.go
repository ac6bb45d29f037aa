package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/spread"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// readyLook is how often it is looked whether the partitions of new keyspaces have leaders.
	readyLook = 200 * time.Millisecond
	// readyPatience is how long a restore waits for that before other jobs have their turn.
	readyPatience = time.Minute
	// saveEvery is how often the record of loaded units is stored.
	saveEvery = 5 * time.Second
	// mostSplits bounds the split points of a keyspace at its creation, in bytes: it splits further
	// as it grows.
	mostSplits = keyspaces.MaxSplitBytes
)

// errRestore is a reason why a restore cannot be done, whatever happens.
var errRestore = errors.New("it cannot be restored")

// restore is a restore under way.
type restore struct {
	*cluster
	// point is what is restored; nil until it has been read.
	point    *manifest.Point
	progress func(*timestamp, *clusterpb.BackupProgress)
	save     func(context.Context, []byte) error
	// chosen are the keyspaces of the moment that are restored, by their ids there. names has
	// their names here, and ids their ids here.
	chosen map[uint32]*manifest.Keyspace
	names  map[uint32]string
	ids    map[uint32]uint32

	// mu guards the progress and the record of loaded units. It is a leaf.
	mu      sync.Mutex
	told    clusterpb.BackupProgress
	loaded  []byte
	savedAt time.Time
}

// Restore implements backups.Maker: it makes keyspaces that no client can name, has the data nodes
// fill them, and gives all of them their names at once.
func (m *Maker) Restore(ctx context.Context, b *clusterpb.Backup,
	progress func(*timestamp, *clusterpb.BackupProgress),
	save func(context.Context, []byte) error) error {
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	r := &restore{cluster: &cluster{Maker: m, backup: b}, progress: progress, save: save,
		loaded: slices.Clone(b.Restore.Loaded), chosen: make(map[uint32]*manifest.Keyspace),
		names: make(map[uint32]string), ids: make(map[uint32]uint32)}
	r.tell("read what the backup contains")
	identities, err := identitiesOf(b.Restore.Identities)
	if err != nil {
		return err
	}
	backups := catalog.New(store, identities)
	if r.point, err = backups.Point(ctx, b.Restore.Backup, b.Restore.Log,
		wire.FromClusterTimestamp(b.Restore.At)); err != nil {
		return err
	}
	if err := r.choose(); err != nil {
		return err
	}
	if err := r.checkSettings(); err != nil {
		return err
	}
	coordinating, err := r.coordinate(ctx, backups)
	if err != nil {
		return err
	}
	return errors.Join(r.do(ctx, coordinating), coordinating.close())
}

// do makes what was chosen.
func (r *restore) do(ctx context.Context, coordinating *coordinating) error {
	if r.backup.Restore.NoKeyspaces {
		if err := coordinating.fill(ctx); err != nil {
			return err
		}
		return r.applySettings(ctx)
	}
	r.tell("create the keyspaces")
	if err := r.create(ctx); errors.Is(err, errPublished) {
		return nil
	} else if err != nil {
		return err
	}
	r.tell("load the keyspaces")
	if err := r.load(ctx); err != nil {
		return err
	}
	if err := coordinating.fill(ctx); err != nil {
		return err
	}
	if err := r.applySettings(ctx); err != nil {
		return err
	}
	r.tell("publish the keyspaces")
	names := make(map[string]string)
	for _, name := range r.names {
		names[keys.HiddenName(r.backup.Id, name)] = name
	}
	return r.config.Core().Publish(ctx, names)
}

// identitiesOf reads identities; none if the text is empty.
func identitiesOf(text string) (archive.Identities, error) {
	if text == "" {
		return nil, nil
	}
	return archive.ParseIdentities(text)
}

// base is the backup that the restore begins with.
func (r *restore) base() *manifest.Manifest { return r.point.Layers[len(r.point.Layers)-1] }

// tell tells of progress.
func (r *restore) tell(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step != "" {
		r.told.Step = step
	}
	p := &clusterpb.BackupProgress{Step: r.told.Step, UnitsDone: r.told.UnitsDone,
		Units: r.told.Units, Records: r.told.Records, Bytes: r.told.Bytes, Failures: r.told.Failures,
		LastFailure: r.told.LastFailure}
	var at *timestamp
	if r.point != nil {
		at = ts(r.point.At)
	}
	r.progress(at, p)
}

// choose finds the keyspaces to be restored, and their names.
func (r *restore) choose() error {
	if r.backup.Restore.NoKeyspaces {
		return nil
	}
	as := make(map[string]string)
	for _, n := range r.backup.Restore.Names {
		as[n.GetName()] = n.GetAs()
	}
	wanted := includes(r.backup)
	taken := make(map[string]bool)
	for i := range r.point.Keyspaces {
		ks := &r.point.Keyspaces[i]
		if wanted != nil && !wanted(ks.Name) {
			continue
		}
		name := ks.Name
		if other, ok := as[name]; ok {
			name = other
			delete(as, ks.Name)
		}
		if taken[name] {
			return fmt.Errorf("%w: two keyspaces would have the name %q", errRestore, name)
		}
		taken[name] = true
		r.chosen[ks.ID], r.names[ks.ID] = ks, name
	}
	for name := range as {
		return fmt.Errorf("%w: the backup %s has no keyspace %q that could have another name",
			errRestore, r.backup.Restore.Backup, name)
	}
	if len(r.chosen) == 0 {
		return fmt.Errorf("%w: the backup %s has no such keyspace", errRestore,
			r.backup.Restore.Backup)
	}
	return nil
}

// create makes the keyspaces that are not there yet, and waits until all of their partitions have
// leaders.
func (r *restore) create(ctx context.Context) error {
	core := r.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	there := make(map[string]*clusterpb.Keyspace)
	for _, info := range all.GetKeyspaces() {
		if info.GetKeyspace().GetState() != clusterpb.KeyspaceState_DROPPING {
			there[info.GetKeyspace().GetName()] = info.GetKeyspace()
		}
	}
	if r.published(there) {
		return errPublished
	}
	for _, id := range slices.Sorted(maps.Keys(r.chosen)) {
		name := r.names[id]
		hidden := keys.HiddenName(r.backup.Id, name)
		if made := there[hidden]; made != nil {
			r.ids[id] = made.GetId()
			continue
		}
		if there[name] != nil {
			return fmt.Errorf("%w: there is a keyspace %q already. Drop it, or restore under another name",
				errRestore, name)
		}
		q, err := creation(r.chosen[id], hidden)
		if err != nil {
			return err
		}
		made, err := core.CreateKeyspace(keyspaces.Hidden(ctx), q)
		if err != nil {
			return fmt.Errorf("creating the keyspace %q: %w", name, err)
		}
		r.ids[id] = made.GetKeyspace().GetId()
	}
	for began := time.Now(); ; {
		waiting, reason, err := r.leaderless(ctx)
		if err != nil {
			return err
		}
		if waiting == 0 {
			return nil
		}
		step := fmt.Sprintf("wait for the leaders of %d partitions%s", waiting, reason)
		if time.Since(began) > readyPatience {
			return errors.New(step) // other jobs have their turn, then this one goes on
		}
		r.tell(step)
		if err := backoff.Sleep(ctx, readyLook); err != nil {
			return err
		}
	}
}

// errPublished: an earlier leader has published the keyspaces, and could not record that any more.
var errPublished = errors.New("the keyspaces are published")

// published reports that an earlier leader has published the keyspaces. It had recorded before that
// all of them were loaded; then they lose their hidden names in no other way, but by people.
func (r *restore) published(there map[string]*clusterpb.Keyspace) bool {
	m := r.point
	if len(r.loaded) != (len(m.Units)+7)/8 {
		return false
	}
	for n := range m.Units {
		if r.chosen[m.Units[n].Keyspace] != nil && r.loaded[n/8]&(1<<(n%8)) == 0 {
			return false
		}
	}
	for _, name := range r.names {
		if there[keys.HiddenName(r.backup.Id, name)] != nil || there[name] == nil {
			return false
		}
	}
	return true
}

// leaderless counts partitions of the new keyspaces without a leader, and keyspaces that are not
// active. reason says what the latter wait for.
func (r *restore) leaderless(ctx context.Context) (n int, reason string, err error) {
	ours := make(map[uint32]bool)
	for _, id := range r.ids {
		ours[id] = true
	}
	core := r.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return 0, "", err
	}
	for _, info := range all.GetKeyspaces() {
		if ours[info.GetKeyspace().GetId()] &&
			info.GetKeyspace().GetState() != clusterpb.KeyspaceState_ACTIVE {
			n++
			if info.GetWaitingFor() != "" {
				reason = fmt.Sprintf(": a keyspace needs %s", info.WaitingFor)
			}
		}
	}
	err = core.ListPartitions(ctx, &clusterpb.ListPartitionsRequest{},
		func(p *clusterpb.PartitionInfo) error {
			if ours[p.GetPartition().GetKeyspace()] && p.GetLeaderNode() == 0 {
				n++
			}
			return nil
		})
	return n, reason, err
}

// creation is the request that makes a keyspace as it was.
func creation(ks *manifest.Keyspace, name string) (*clusterpb.CreateKeyspaceRequest, error) {
	d := new(clusterpb.Keyspace)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(ks.Definition,
		d); err != nil {
		return nil, fmt.Errorf("%w: the definition of the keyspace %q: %w", errRestore, ks.Name, err)
	}
	q := &clusterpb.CreateKeyspaceRequest{Name: name, Partitioning: d.Partitioning,
		HashPartitions: d.HashPartitions, ReplicationFactor: d.ReplicationFactor,
		GcWindowSeconds: d.GcWindowSeconds, CommitWait: d.CommitWait,
		TxnMaxAgeMillis: d.TxnMaxAgeMillis, TxnMaxIdleMillis: d.TxnMaxIdleMillis,
		Placement: d.Placement, Leaders: d.Leaders, SplitSizeBytes: d.SplitSizeBytes,
		MergeSizeBytes: d.MergeSizeBytes, NoAuto: d.NoAuto,
		ClosedTimestampLagMillis: d.ClosedTimestampLagMillis, DefaultTtlMillis: d.DefaultTtlMillis}
	if ks.Hashed {
		return q, nil // its hash partitions are there, and split again as they grow
	}
	size := 0
	for _, row := range ks.Splits {
		if size += len(row); size > mostSplits || len(q.SplitAt) == keys.MaxHashPartitions-1 {
			break
		}
		q.SplitAt = append(q.SplitAt, row)
	}
	return q, nil
}

// load has the data nodes load all units that are not loaded.
func (r *restore) load(ctx context.Context) error {
	m := r.point
	var units []int
	r.mu.Lock()
	if want := (len(m.Units) + 7) / 8; len(r.loaded) != want {
		r.loaded = make([]byte, want)
	}
	for n := range m.Units {
		if r.chosen[m.Units[n].Keyspace] == nil {
			continue
		}
		r.told.Units++
		if r.loaded[n/8]&(1<<(n%8)) != 0 {
			r.told.UnitsDone++
			continue
		}
		units = append(units, n)
	}
	r.savedAt = time.Now()
	r.mu.Unlock()
	err := spread.Run(ctx, spread.Config{Nodes: r.Nodes, Do: r.loadUnit, Final: r.final,
		Done: func(n int) error {
			r.mu.Lock()
			r.told.UnitsDone++
			r.loaded[n/8] |= 1 << (n % 8)
			due := time.Since(r.savedAt) >= saveEvery
			if due {
				r.savedAt = time.Now()
			}
			loaded := slices.Clone(r.loaded)
			r.mu.Unlock()
			r.tell("")
			if due {
				return r.save(ctx, loaded)
			}
			return nil
		},
		Failed: func(node keys.NodeID, _ int, err error) {
			r.mu.Lock()
			r.told.Failures++
			r.told.LastFailure = fmt.Sprintf("node %d: %v", node, err)
			r.mu.Unlock()
			r.tell("")
		}}, units)
	if err != nil {
		return err
	}
	return r.save(ctx, r.loaded)
}

// final reports errors after which no other node is of use.
func (r *restore) final(err error) bool { return !r.Passing(err) }

// loadUnit has a node load a unit.
func (r *restore) loadUnit(ctx context.Context, node keys.NodeID, n int) error {
	worker, err := r.worker(node)
	if err != nil {
		return err
	}
	id := r.point.Units[n].Keyspace
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := worker.Load(ctx, &backuppb.LoadRequest{Cluster: r.config.Cluster(),
		Node: uint64(node), Target: r.backup.Target, Backup: r.backup.Restore.Backup,
		Unit: uint32(n), Identities: r.backup.Restore.Identities, Keyspace: r.ids[id],
		KeyspaceName: r.names[id], At: r.backup.Restore.At, Log: r.backup.Restore.Log})
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return ofNode(err)
		}
		r.mu.Lock()
		r.told.Records += answer.GetWritten() + answer.GetPresent()
		r.told.Bytes += answer.GetBytes()
		r.mu.Unlock()
		r.tell("")
		if answer.GetOver() {
			return nil
		}
	}
}

// undoRestore drops the keyspaces of a restore that were not published, and empties the
// coordination store if it was not filled to the end.
func (m *Maker) undoRestore(ctx context.Context, b *clusterpb.Backup) error {
	if b.Restore.Coordination {
		if err := m.abandon(ctx, b); err != nil {
			return err
		}
	}
	core := m.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	for _, info := range all.GetKeyspaces() {
		name := info.GetKeyspace().GetName()
		if restore, _, ok := keys.SplitHiddenName(name); !ok || restore != b.Id ||
			info.GetKeyspace().GetState() == clusterpb.KeyspaceState_DROPPING {
			continue
		}
		if _, err := core.DropKeyspace(ctx,
			&clusterpb.DropKeyspaceRequest{Name: name}); status.Code(err) != codes.NotFound &&
			err != nil {
			return err
		}
	}
	return nil
}
